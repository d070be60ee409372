"""Search finds exactly what reading everything would find."""

import sqlite3

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from chat_core.errors import InvalidInput, TooLarge
from chat_core.models import LOCAL_USER, SearchHit, Session, User
from chat_core.store.search_text import fold
from chat_core.workbench import Workbench
from tests.support.runs import finish
from tests.support.stored import add_message, add_session, all_hits


def found(workbench: Workbench, query: str) -> list[str | None]:
    return [hit.message_uuid for hit in all_hits(workbench, LOCAL_USER, query)]


def scan(workbench: Workbench, query: str) -> list[str]:
    """What reading every message finds, newest first."""
    with workbench.store.database.read() as db:
        rows = db.execute("SELECT message_uuid, content FROM chat_message ORDER BY id DESC").fetchall()
    return [row["message_uuid"] for row in rows if fold(query.strip()) in fold(row["content"])]


def like_scan(workbench: Workbench, query: str) -> list[str]:
    pattern = query.strip().replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    with workbench.store.database.read() as db:
        rows = db.execute(
            r"SELECT message_uuid FROM chat_message WHERE content LIKE ? ESCAPE '\' ORDER BY id DESC", (f"%{pattern}%",)
        )
        return [row[0] for row in rows]


@pytest.mark.parametrize(
    "query",
    ["修复", "gen", "itgc", "重", "后", "跑g", "c后", "GEN-ITGC", "重跑gen-itgc后修复", "n-i", "-", "g", "G", "it"],
)
def test_words_and_pieces_of_chinese_and_latin_text_are_found(
    workbench: Workbench, session: Session, query: str
) -> None:
    wanted = add_message(workbench, session, "重跑gen-itgc后修复")
    add_message(workbench, session, "nothing of this kind")
    assert wanted in found(workbench, query)
    assert found(workbench, query) == like_scan(workbench, query)


@pytest.mark.parametrize(
    "text",
    [
        "%",
        "_",
        '"',
        "'",
        '"a" OR "b"',
        "NOT",
        "a NOT b",
        "a*",
        "(",
        "NEAR(a b)",
        "col:x",
        "👩‍👩‍👧",
        "🙂",
        "\\",
        "a\nb",
        "--",
        "é",
        "^x",
    ],
)
def test_operators_and_emoji_are_plain_text(workbench: Workbench, session: Session, text: str) -> None:
    wanted = add_message(workbench, session, f"before {text} after")
    add_message(workbench, session, "before after ab x 10 percent")
    assert found(workbench, text) == [wanted]


@pytest.mark.parametrize(("text", "query"), [("ÜBER", "über"), ("ПРИВЕТ", "привет"), ("ΣΊΣΥΦΟΣ", "ος"), ("ﬀ", "ﬀ")])
def test_case_does_not_matter_outside_ascii_either(
    workbench: Workbench, session: Session, text: str, query: str
) -> None:
    wanted = add_message(workbench, session, text)
    assert found(workbench, query) == [wanted]


alphabet = st.sampled_from("abAB 修复的é_%\"'*ß🙂ΣςK\u212aſ-")


@hypothesis_settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    texts=st.lists(st.text(alphabet, max_size=12), min_size=1, max_size=8),
    queries=st.lists(st.text(alphabet, min_size=1, max_size=5), min_size=1, max_size=6),
    changes=st.lists(st.tuples(st.integers(0, 7), st.text(alphabet, max_size=6)), max_size=3),
)
def test_search_finds_what_a_scan_finds(
    workbench: Workbench,
    session: Session,
    texts: list[str],
    queries: list[str],
    changes: list[tuple[int, str]],
) -> None:
    with workbench.store.database.write() as db:
        db.execute("UPDATE chat_session SET leaf_id = NULL")
        db.execute("DELETE FROM chat_message")
    uuids = [add_message(workbench, session, text) for text in texts]
    for place, text in changes:
        if place < len(uuids):
            with workbench.store.database.write() as db:
                db.execute("UPDATE chat_message SET content = ? WHERE message_uuid = ?", (text, uuids[place]))
    for query in [*queries, *(text[:4] for text in texts)]:
        if query.strip():
            assert found(workbench, query) == scan(workbench, query), query
            assert set(like_scan(workbench, query)) <= set(found(workbench, query))
            listed = workbench.list_sessions(LOCAL_USER, query=query).rows
            assert bool(listed) == bool(scan(workbench, query))
    assert workbench.store.check() == []


@given(st.text(max_size=30))
def test_folded_text_keeps_its_length_and_folds_each_character_alone(text: str) -> None:
    assert len(fold(text)) == len(text)
    assert fold(text) == "".join(fold(character) for character in text)
    assert fold(fold(text)) == fold(text)


def test_only_the_users_own_sessions_are_searched(workbench: Workbench, session: Session) -> None:
    theirs = add_session(workbench, User("other"), title="shared word")
    add_message(workbench, theirs, "shared word")
    mine = add_message(workbench, session, "shared word")
    assert found(workbench, "shared") == [mine]


def test_titles_come_first_and_pages_follow_each_other_without_gap_or_double(workbench: Workbench, user: User) -> None:
    sessions = [add_session(workbench, user, title=f"needle {number}") for number in range(7)]
    expected: list[str | None] = [None] * 7
    expected += [add_message(workbench, sessions[number % 7], f"a needle {number}") for number in range(11)][::-1]
    pages: list[SearchHit] = []
    before = None
    while True:
        page = workbench.search(user, "NEEDLE", limit=4, before=before)
        assert len(page.hits) <= 4
        pages += page.hits
        before = page.next_before
        if before is None:
            break
    assert [hit.message_uuid for hit in pages] == expected
    assert len({(hit.session.uuid, hit.message_uuid) for hit in pages}) == 18


def test_a_snippet_is_one_bounded_line_around_the_match(workbench: Workbench, session: Session, user: User) -> None:
    add_message(workbench, session, "x " * 5000 + "the\nNeedle\tand a needle" + " y" * 5000)
    hit = workbench.search(user, "needle").hits[0]
    assert len(hit.snippet) <= 202
    assert "\n" not in hit.snippet
    assert [hit.snippet[start:end] for start, end in hit.matches] == ["Needle", "needle"]
    assert hit.snippet.startswith("…")
    assert hit.snippet.endswith("…")


def test_a_match_longer_than_the_snippet_is_marked_to_its_end(
    workbench: Workbench, session: Session, user: User
) -> None:
    add_message(workbench, session, "go " + "w" * 900)
    hit = workbench.search(user, "w" * 800).hits[0]
    assert hit.matches == ((3, 200),)


def test_hits_tell_whether_they_are_on_the_active_branch(workbench: Workbench, session: Session, user: User) -> None:
    first = workbench.ask(user, session.uuid, "apple one")
    finish(workbench, user, first.run_id)
    finish(workbench, user, workbench.edit_and_run(user, first.user_message_uuid, "apple two").run_id)
    workbench.reset(user, session.uuid)
    hits = workbench.search(user, "apple").hits
    assert {(hit.role, hit.snippet, hit.on_active_branch) for hit in hits if hit.message_uuid} == {
        ("USER", "apple one", False),
        ("ASSISTANT", "apple one", False),
        ("USER", "apple two", True),
        ("ASSISTANT", "apple two", True),
    }


def test_the_list_shows_sessions_whose_title_or_message_matches(workbench: Workbench, user: User) -> None:
    by_title = add_session(workbench, user, title="Plan of 修复")
    by_message = add_session(workbench, user, title="another")
    add_session(workbench, user, title="neither")
    add_message(workbench, by_message, "重跑后修复")
    for query in ("修复", "修"):
        rows = workbench.list_sessions(user, query=query).rows
        assert {row.session.uuid for row in rows} == {by_title.uuid, by_message.uuid}
    assert [row.session.uuid for row in workbench.list_sessions(user, query="重跑后").rows] == [by_message.uuid]


def test_a_word_that_is_in_very_many_messages_lists_sessions_too(
    workbench: Workbench, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chat_core.store.search.FEW_CANDIDATES", 3)
    sessions = [add_session(workbench, user) for _ in range(6)]
    for session in sessions:
        add_message(workbench, session, "the common word 的")
    for query in ("common", "的"):
        page = workbench.list_sessions(user, query=query, limit=4)
        rest = workbench.list_sessions(user, query=query, limit=4, before=page.rows[-1].session.uuid)
        assert page.has_more
        assert {row.session.uuid for row in page.rows + rest.rows} == {session.uuid for session in sessions}


def test_deleted_messages_leave_the_index(workbench: Workbench, session: Session, user: User) -> None:
    add_message(workbench, session, "forget me 忘")
    workbench.delete_session(user, session.uuid, undo_seconds=0)
    with workbench.store.database.read() as db:
        for table, term in (("search_trigram", '"for"'), ("search_pair", '"忘"*')):
            assert db.execute(f"SELECT count(*) FROM {table} WHERE {table} MATCH ?", (term,)).fetchone()[0] == 0


def test_a_strange_cursor_and_an_endless_query_are_refused(workbench: Workbench, user: User) -> None:
    with pytest.raises(InvalidInput):
        workbench.search(user, "abc", before="yesterday")
    with pytest.raises(TooLarge):
        workbench.search(user, "x" * 1001)
    assert workbench.search(user, "  ").hits == []


def test_search_is_answered_from_the_index(workbench: Workbench) -> None:
    """Not a timing: a scan of all messages must not be in the plan."""
    plans = [plan for query in ("修", "修复", "repair") for plan in _plans(workbench, query)]
    assert len(plans) >= 9
    assert not [plan for plan in plans if plan.startswith("SCAN m")]


def _plans(workbench: Workbench, query: str) -> list[str]:
    """The steps SQLite takes for the statements of a search."""
    statements: list[str] = []
    with workbench.store.database.read() as db:
        connection: sqlite3.Connection = db
    connection.set_trace_callback(statements.append)
    workbench.search(LOCAL_USER, query)
    connection.set_trace_callback(None)
    return [
        str(row[3])
        for statement in statements
        if "FROM search_" in statement
        for row in connection.execute("EXPLAIN QUERY PLAN " + statement)
    ]
