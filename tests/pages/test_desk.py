"""The desk round a conversation: memory, import, many sessions at once, settings, a run that goes on."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from chat_core.bridge.process import BridgeState
from chat_core.bridge.protocol import Health, MemoryText, ModelChoice
from chat_core.errors import BridgeUnavailable, InvalidInput
from chat_core.models import Session, Started, User
from chat_core.ui import session_import
from chat_core.ui.sidebar import MAX_ROWS, PAGE_ROWS
from chat_core.workbench import Workbench
from tests.pages.reading import rows, words
from tests.support.runtimes import GatedRuntime, answers, calls_tool, emits

OpenPage = Callable[..., AppTest]
Finish = Callable[[Started], Started]


class AgentFiles:
    """The agent's two files, as the Bridge keeps them."""

    def __init__(self) -> None:
        self.texts = {"memory": "likes tea", "user": ""}
        self.refusal = ""
        self.is_away = False

    def read(self, _user: User, which: str) -> MemoryText:
        if self.is_away:
            raise BridgeUnavailable("gone")
        return MemoryText(text=self.texts[which], limit=50, used=len(self.texts[which]))

    def write(self, user: User, which: str, text: str) -> MemoryText:
        if self.refusal:
            raise InvalidInput(self.refusal)
        self.texts[which] = text.strip()
        return self.read(user, which)


@pytest.fixture
def files(workbench: Workbench, monkeypatch: pytest.MonkeyPatch) -> AgentFiles:
    files = AgentFiles()
    monkeypatch.setattr(workbench, "memory", files.read)
    monkeypatch.setattr(workbench, "write_memory", files.write)
    return files


@pytest.fixture
def open_memory(open_page: OpenPage) -> Callable[[Session], AppTest]:
    def open_drawer(session: Session) -> AppTest:
        page = open_page(session=session.uuid)
        page.button(key="open-memory").click().run()
        assert not page.exception
        return page

    return open_drawer


def go_to_import(page: AppTest) -> AppTest:
    page.get_by_key("list-menu").set_value("import")
    page.run()
    return page


def labels(page: AppTest) -> str:
    return "\n".join(str(getattr(element, "label", "")) for element in page._tree)


# --- memory ---


def test_the_drawer_shows_what_is_in_mind_and_how_full_the_context_is(
    open_memory: Callable[[Session], AppTest],
    workbench: Workbench,
    user: User,
    gated: GatedRuntime,
    gated_session: Session,
    finish: Finish,
    files: AgentFiles,
) -> None:
    gated.steps = [
        calls_tool("read_file", "the <b>result</b>", path="notes.md"),
        emits("context_compacted", summary="## What **was**", condensed=23),
        answers("Done `here`."),
        emits("usage", context_tokens=1536, context_window=6144),
    ]
    gated.release()
    finish(workbench.ask(user, gated_session.uuid, "hello <b>"))
    page = open_memory(gated_session)
    shown = words(page)
    assert "2 messages." in shown
    assert "**You** hello <b>" in shown
    assert "**Agent** Done here." in shown
    assert "Context: 1536 of 6144 tokens (25 %)" in page.get("progress")[0].proto.text.replace("\\", "")
    assert "`read_file`" in labels(page)
    assert "the <b>result</b>" in [code.value for code in page.code]
    assert "23 earlier messages were condensed" in labels(page)
    assert "MEMORY.md" in labels(page)


def test_an_empty_mind_is_said_plainly(
    open_memory: Callable[[Session], AppTest],
    workbench: Workbench,
    user: User,
    session: Session,
    finish: Finish,
    files: AgentFiles,
) -> None:
    finish(workbench.ask(user, session.uuid, "hello"))
    workbench.reset(user, session.uuid)
    shown = words(open_memory(session))
    assert "the next run begins with your message alone" in shown
    assert "No tool was used" in shown
    assert "Nothing was condensed" in shown


def test_the_agents_file_is_edited_and_saved(
    open_memory: Callable[[Session], AppTest],
    workbench: Workbench,
    user: User,
    session: Session,
    finish: Finish,
    files: AgentFiles,
) -> None:
    finish(workbench.ask(user, session.uuid, "hello"))
    page = open_memory(session)
    page.text_area(key="memory-text-memory").set_value("likes coffee ").run()
    assert "13 of 50 characters" in words(page)
    page.button(key="memory-save-memory").click().run()
    assert files.texts["memory"] == "likes coffee"
    assert page.text_area(key="memory-text-memory").value == "likes coffee"
    assert "Saved" in words(page)


def test_a_refused_write_says_why_and_keeps_the_typed_text(
    open_memory: Callable[[Session], AppTest],
    workbench: Workbench,
    user: User,
    session: Session,
    finish: Finish,
    files: AgentFiles,
) -> None:
    finish(workbench.ask(user, session.uuid, "hello"))
    files.refusal = "The text has 99 characters; the agent reads at most 50."
    page = open_memory(session)
    page.text_area(key="memory-text-memory").set_value("x" * 99).run()
    page.button(key="memory-save-memory").click().run()
    assert "the agent reads at most 50" in words(page)
    assert page.text_area(key="memory-text-memory").value == "x" * 99
    assert files.texts["memory"] == "likes tea"
    page.button(key="memory-revert-memory").click().run()
    assert page.text_area(key="memory-text-memory").value == "likes tea"


def test_what_the_agent_wrote_meanwhile_is_not_overwritten_unasked(
    open_memory: Callable[[Session], AppTest],
    workbench: Workbench,
    user: User,
    session: Session,
    finish: Finish,
    files: AgentFiles,
) -> None:
    finish(workbench.ask(user, session.uuid, "hello"))
    page = open_memory(session)
    page.text_area(key="memory-text-memory").set_value("mine").run()
    files.texts["memory"] = "the agent's"
    page.button(key="memory-save-memory").click().run()
    assert files.texts["memory"] == "the agent's"
    assert "The agent changed this file meanwhile" in words(page)
    assert page.text_area(key="memory-text-memory").value == "mine"
    page.button(key="memory-save-memory").click().run()
    assert files.texts["memory"] == "mine"


def test_a_bridge_that_is_away_leaves_the_other_views_and_says_so(
    open_memory: Callable[[Session], AppTest],
    workbench: Workbench,
    user: User,
    session: Session,
    finish: Finish,
    files: AgentFiles,
) -> None:
    finish(workbench.ask(user, session.uuid, "hello"))
    page = open_memory(session)
    page.text_area(key="memory-text-user").set_value("typed").run()
    files.is_away = True
    page.button(key="memory-save-user").click().run()
    shown = words(page)
    assert "The Bridge is not reachable" in shown
    assert "**You** hello" in shown
    files.is_away = False
    page.run()
    assert page.text_area(key="memory-text-user").value == "typed"


# --- a run that goes on, summaries ---


def test_a_continued_answer_keeps_what_was_written_above_the_live_panel(
    open_page: OpenPage, workbench: Workbench, user: User, gated: GatedRuntime, gated_session: Session, finish: Finish
) -> None:
    gated.steps = [answers("The first part. "), answers("never")]
    started = workbench.ask(user, gated_session.uuid, "hello")
    gated.wait_until_started()
    gated.release(1)
    for entry in workbench.follow(user, started.run_id):
        if entry.kind == "answer":
            workbench.stop(user, started.run_id)
    gated.steps = [answers("The second part.")]
    page = open_page(session=gated_session.uuid)
    page.button(key=f"continue-{started.message_uuid}").click().run()
    run = workbench.active_run(user, gated_session.uuid)
    assert run is not None
    assert run.message_uuid == started.message_uuid
    assert "The first part." in words(page)
    gated.release(10)
    finish(Started(run.run_id, "", ""))
    page.run()
    texts = [element.value for element in page.markdown]
    assert sum("The first part." in text for text in texts) == 1
    assert "The first part. \n\nThe second part." in texts
    assert len(workbench.branch(user, gated_session.uuid).messages) == 2


def test_a_summary_says_how_many_messages_it_stands_for_and_opens_to_its_text(
    open_page: OpenPage, workbench: Workbench, user: User, gated: GatedRuntime, gated_session: Session, finish: Finish
) -> None:
    gated.steps = [emits("context_compacted", summary="the *gist*", condensed=1), answers("Done.")]
    gated.release()
    finish(workbench.ask(user, gated_session.uuid, "hello"))
    page = open_page(session=gated_session.uuid)
    assert "1 earlier message was condensed" in labels(page)
    assert "the *gist*" in [element.value for element in page.markdown]


# --- import ---


def test_an_imported_conversation_opens_and_a_second_import_makes_no_copy(
    open_page: OpenPage,
    workbench: Workbench,
    user: User,
    session: Session,
    finish: Finish,
) -> None:
    finish(workbench.ask(user, session.uuid, "from the file"))
    exported = workbench.export(user, session.uuid, "json")
    workbench.delete_session(user, session.uuid, undo_seconds=0)
    for told in ("This conversation was imported.", "was imported before"):
        page = go_to_import(open_page())
        page.get("file_uploader")[0].set_value(("a.json", exported.encode(), "application/json")).run()
        assert not page.exception
        assert told in words(page)
        assert "from the file" in words(page)
    assert len(workbench.list_sessions(user).rows) == 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"not json", "JSON"),
        (b'{"format": "other"}', "not a session exported by Parley"),
        (json.dumps([1]).encode(), "file"),
    ],
)
def test_a_file_that_is_no_export_is_refused_in_plain_words(
    open_page: OpenPage, workbench: Workbench, user: User, data: bytes, reason: str
) -> None:
    page = go_to_import(open_page())
    page.get("file_uploader")[0].set_value(("a.json", data, "application/json")).run()
    assert not page.exception
    notice = words(page)
    assert reason in notice
    assert "Traceback" not in notice
    assert workbench.list_sessions(user).rows == []


def test_an_import_is_limited_in_size(open_page: OpenPage) -> None:
    page = go_to_import(open_page())
    assert page.get("file_uploader")[0].proto.max_upload_size_mb == session_import.LIMIT_MB


# --- many at once ---


def select(page: AppTest, *sessions: Session) -> None:
    page.get_by_key("list-menu").set_value("select")
    page.run()
    for session in sessions:
        page.checkbox(key=f"select-{session.uuid}").check().run()


def test_selected_conversations_are_archived_together(open_page: OpenPage, workbench: Workbench, user: User) -> None:
    sessions = [workbench.create_session(user, title=f"number {at}", runtime="echo") for at in range(3)]
    page = open_page()
    select(page, *sessions[:2])
    assert "2 selected" in words(page)
    page.button(key="select-archive").click().run()
    assert [label.split("**")[1] for label in rows(page)] == ["number 2"]
    page.button(key="archive-open").click().run()
    assert len(rows(page)) == 2


def test_selected_conversations_are_deleted_together_and_come_back_together(
    open_page: OpenPage, workbench: Workbench, user: User
) -> None:
    sessions = [workbench.create_session(user, title=f"number {at}", runtime="echo") for at in range(3)]
    page = open_page(session=sessions[0].uuid)
    page.get_by_key("list-menu").set_value("select")
    page.run()
    page.checkbox(key="select-all").check().run()
    page.button(key="select-delete").click().run()
    assert rows(page) == []
    assert "Deleted 3 conversations." in words(page)
    assert "session" not in page.query_params
    page.button(key="undo-delete").click().run()
    assert len(rows(page)) == 3
    assert page.query_params["session"] == sessions[0].uuid


def test_deleting_many_asks_when_one_of_them_is_at_work(
    open_page: OpenPage,
    workbench: Workbench,
    user: User,
    session: Session,
    gated: GatedRuntime,
    gated_session: Session,
) -> None:
    workbench.ask(user, gated_session.uuid, "hello")
    gated.wait_until_started()
    page = open_page()
    select(page, session, gated_session)
    page.button(key="select-delete").click().run()
    assert "Delete 2 conversations? Runs that are at work are stopped first." in words(page)
    assert len(workbench.list_sessions(user).rows) == 2
    page.button(key="delete-many-yes").click().run()
    assert workbench.list_sessions(user).rows == []


def test_selected_conversations_are_exported_through_the_api(
    open_page: OpenPage, workbench: Workbench, user: User, session: Session
) -> None:
    page = open_page()
    select(page, session)
    page.button(key="select-export").click().run()
    wanted = page.session_state["view"].download
    assert wanted.path == "/api/chat/sessions/export"
    assert wanted.body == {"session_ids": [session.uuid], "format": "json"}


def test_the_list_goes_on_to_older_pages_and_back(open_page: OpenPage, workbench: Workbench, user: User) -> None:
    for number in range(MAX_ROWS + 2):
        workbench.create_session(user, title=f"number {number}", runtime="echo")
    page = open_page()
    for _ in range(MAX_ROWS // PAGE_ROWS - 1):
        page.button(key="list-more").click().run()
    assert len(rows(page)) == MAX_ROWS
    page.button(key="list-older").click().run()
    assert [label.split("**")[1] for label in rows(page)] == ["number 1", "number 0"]
    page.button(key="list-newer").click().run()
    assert len(rows(page)) == MAX_ROWS


# --- settings ---


def open_settings(open_page: OpenPage, workbench: Workbench, monkeypatch: pytest.MonkeyPatch, **health: Any) -> AppTest:
    monkeypatch.setattr(workbench, "bridge_health", lambda user: Health(**health))
    page = open_page()
    page.switch_page("settings.py")
    page.run()
    assert not page.exception
    assert not page.error, page.error
    return page


def test_settings_name_models_problems_tools_and_the_data_folder(
    open_page: OpenPage, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ModelChoice(id="m", label="My <model>", context_window=128_000, is_default=True)
    monkeypatch.setattr(workbench, "models", lambda user: [model])
    problem = "models.toml, the model 'x': base_url: must be an address."
    page = open_settings(
        open_page, workbench, monkeypatch, problems=[problem], toolsets=["todo", "clarify"], runtimes=["hermes"]
    )
    shown = words(page)
    assert "My <model>" in shown
    assert "128,000 tokens of context" in shown
    assert problem in shown
    assert "has no access to this machine" in shown
    assert str(workbench.settings.models_file) in shown
    assert str(workbench.settings.data_dir) in shown
    assert "make backup" in shown
    assert "[[models]]" in shown


def test_settings_warn_when_the_agent_reaches_this_machine(
    open_page: OpenPage, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = words(open_settings(open_page, workbench, monkeypatch, toolsets=["todo", "terminal"]))
    assert "A folder is not a sandbox." in shown
    assert "runs commands on this machine" in shown


def test_settings_hold_without_a_bridge(
    open_page: OpenPage, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workbench, "bridge_state", lambda: BridgeState("down", "it is gone"))
    shown = words(open_settings(open_page, workbench, monkeypatch))
    assert "The Bridge is not reachable now" in shown
    assert "make backup" in shown


def test_the_language_is_chosen_in_the_settings(
    open_page: OpenPage, workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = open_settings(open_page, workbench, monkeypatch)
    page.get_by_key("settings-language").set_value("zh-CN").run()
    assert "设置" in words(page)
