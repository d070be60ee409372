"""The event stream of a run over a real server: every way to join it, leave it and come back."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from chat_core.api.stream import ENTRIES_AT_ONCE, OpenStreams
from chat_core.models import LogEntry, Session, Started, User
from chat_core.workbench import Workbench
from tests.api.waiting import wait_for_question, wait_until_ended
from tests.support.runtimes import (
    GatedRuntime,
    answers,
    asks_approval,
    breaks,
    calls_tool,
    chunks,
    echoes,
    emits,
    reports_error,
    thinks,
)
from tests.support.served_app import StreamReader

Open = Callable[..., StreamReader]


@pytest.fixture
def read(served: str) -> Iterator[Open]:
    readers: list[StreamReader] = []

    def open_reader(run_id: str, last_event_id: str | None = None, query: str = "") -> StreamReader:
        readers.append(StreamReader(f"{served}/runs/{run_id}/stream{query}", last_event_id))
        return readers[-1]

    yield open_reader
    for reader in readers:
        reader.close()


@pytest.fixture
def ended(workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime) -> Started:
    """A run of 10 separate entries that has ended."""
    gated.steps = [
        thinks("a"),
        calls_tool(),
        thinks("b"),
        calls_tool(),
        thinks("c"),
        emits("status", text="x"),
        echoes(),
    ]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "hello")
    wait_until_ended(workbench, user, started.run_id)
    return started


def all_entries(workbench: Workbench, user: User, run_id: str) -> list[LogEntry]:
    return workbench.entries(user, run_id, 0, 100_000)


# -- what a stream looks like ------------------------------------------------------------------------------------


def test_a_stream_holds_the_whole_run_in_order_and_ends(
    workbench: Workbench, user: User, ended: Started, read: Open
) -> None:
    reader = read(ended.run_id)
    reader.wait_until_ended()
    entries = all_entries(workbench, user, ended.run_id)
    assert reader.headers["content-type"].startswith("text/event-stream")
    assert "no-cache" in reader.headers["cache-control"]
    assert reader.ids == [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert [block.data["kind"] for block in reader.blocks] == [entry.kind for entry in entries]
    assert all(block.data["v"] == 1 and block.data["seq"] == block.id for block in reader.blocks)
    assert all(block.data["at"].endswith("Z") for block in reader.blocks)


def test_every_kind_has_its_event_and_fields(
    workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime, read: Open
) -> None:
    todos = [{"id": "1", "content": "look", "status": "pending"}]
    gated.steps = [
        thinks("hm"),
        emits("status", text="busy", level="warning"),
        answers("first look"),
        breaks(),
        calls_tool("search", "found", query="x"),
        calls_tool("broken", "no", is_error=True),
        emits("todo_update", todos=todos),
        emits("usage", input_tokens=5),
        asks_approval("rm -rf scratch", "deletes files"),
        answers("the end"),
    ]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "hello")
    reader = read(started.run_id)
    question = wait_for_question(workbench, user, started.run_id).question
    assert question is not None
    workbench.answer(user, started.run_id, question.question_id, "once")
    reader.wait_until_ended()

    found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for block in reader.blocks:
        data = {name: value for name, value in block.data.items() if name not in {"v", "seq", "at", "kind"}}
        found.setdefault(block.data["kind"], []).append((block.event, data))
    assert found["run_started"][0][0] == "progress"
    assert found["thinking"] == [("progress", {"text": "hm"})]
    (status,) = found["status"]
    assert (status[0], status[1]["text"], status[1]["level"]) == ("progress", "busy", "warning")
    assert found["answer"][0] == ("token", {"text": "first look"})
    assert found["answer_break"] == [("progress", {"text": "first look"})]
    assert found["tool_call"][0] == ("tool_call", {"call_id": "call_1", "name": "search", "args": {"query": "x"}})
    event, result = found["tool_result"][0]
    assert event == "tool_call"
    assert (result["call_id"], result["name"], result["result"]) == ("call_1", "search", "found")
    assert (result["duration_ms"], result["is_error"], result["cut"]) == (5, False, False)
    assert found["tool_result"][1][1]["is_error"] is True
    assert found["todo_update"] == [("progress", {"todos": todos})]
    assert found["usage"][0][1]["input_tokens"] == 5
    event, request = found["approval_request"][0]
    assert event == "progress"
    assert request["question"]["question_id"] == question.question_id
    assert (request["question"]["kind"], request["question"]["choices"]) == ("approval", ["once", "session", "deny"])
    assert request["question"]["detail"]["command"] == "rm -rf scratch"
    decision = found["approval_decision"][0][1]
    assert (decision["text"], decision["question_id"]) == ("once", question.question_id)
    event, done = found["run_finished"][0]
    assert event == "done"
    assert done == {"status": "SUCCESS", "text": "Decision: once.the end", "message_id": started.message_uuid}


def test_a_failed_run_ends_with_an_error_event(
    workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime, read: Open
) -> None:
    gated.steps = [reports_error("model_auth", "The key is wrong.")]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "hello")
    reader = read(started.run_id)
    reader.wait_until_ended()
    last = reader.blocks[-1]
    assert (last.event, last.data["code"], last.data["message"]) == ("error", "model_auth", "The key is wrong.")
    assert (last.data["status"], last.data["message_id"]) == ("FAILED", started.message_uuid)


def test_a_stopped_run_ends_with_done_and_its_partial_answer(
    workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime, read: Open
) -> None:
    gated.steps = [answers("half"), answers("never")]
    started = workbench.ask(user, gated_session.uuid, "hello")
    gated.release(1)
    reader = read(started.run_id)
    reader.wait_for_text("half")
    workbench.stop(user, started.run_id)
    reader.wait_until_ended()
    last = reader.blocks[-1]
    assert (last.event, last.data["status"], last.data["text"]) == ("done", "STOPPED", "half")


def test_hostile_text_cannot_break_the_framing(
    workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime, read: Open
) -> None:
    text = "a\n\nid: 99\nevent: done\ndata: {}\n\n\u2028\u2029\x85\x0b\r\n\ud83d\ude00 \x1b[31m </script>"
    gated.steps = [answers(text), calls_tool("na\nme", text, arg=text), thinks(text)]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "hello")
    reader = read(started.run_id)
    reader.wait_until_ended()
    shown = text.replace("\ud83d\ude00", "\U0001f600")
    assert reader.text == shown
    assert reader.ids == list(range(1, len(reader.ids) + 1))
    calls = [block.data for block in reader.blocks if block.event == "tool_call"]
    assert calls[0]["args"] == {"arg": shown}
    assert calls[1]["result"] == shown


def test_large_results_and_arguments_travel_as_their_start(
    workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime, read: Open
) -> None:
    gated.steps = [
        calls_tool("write", "x" * 200_000, body="y" * 150_000),
        calls_tool("write", "z" * 9_000),
    ]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "hello")
    reader = read(started.run_id)
    reader.wait_until_ended()
    call, large, call_2, small = [block.data for block in reader.blocks if block.event == "tool_call"]
    assert len(json.dumps(call)) < 20_000
    assert (large["bytes"], large["cut"]) == (200_000, True)
    assert large["result_ref"]
    assert len(large["result"]) < 5_000
    assert (small["cut"], len(small["result"]) < 5_000) == (True, True)
    assert call_2["args"] == {}


# -- joining and coming back -------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["header", "query"])
def test_a_reader_goes_on_exactly_after_the_id_it_names(ended: Started, read: Open, by: str) -> None:
    whole = read(ended.run_id)
    whole.wait_until_ended()
    for seen in (1, 4, whole.ids[-1] - 1):
        reader = read(ended.run_id, str(seen)) if by == "header" else read(ended.run_id, query=f"?last_event_id={seen}")
        reader.wait_until_ended()
        assert reader.blocks == whole.blocks[seen:]


@pytest.mark.parametrize("cursor", ["0", "00", "", None])
def test_without_an_id_or_with_0_the_whole_run_comes_without_resync(
    ended: Started, read: Open, cursor: str | None
) -> None:
    reader = read(ended.run_id, cursor)
    reader.wait_until_ended()
    assert reader.ids[0] == 1
    assert reader.blocks[-1].event == "done"


@pytest.mark.parametrize(
    "cursor", ["10000", "999999999999999999", "9" * 40, "-1", "abc", "1.5", "1e3", "+1", "²", "1 2"]
)
def test_an_id_that_cannot_be_served_gets_a_resync_and_then_the_whole_run(
    served: str, ended: Started, read: Open, cursor: str
) -> None:
    whole = read(ended.run_id)
    whole.wait_until_ended()
    reader = read(ended.run_id, query=str(httpx.URL("", params={"last_event_id": cursor})))
    reader.wait_until_ended()
    first = reader.blocks[0]
    assert (first.id, first.event, first.data["kind"]) == (0, "resync", "resync")
    assert first.data["reason"]
    assert reader.blocks[1:] == whole.blocks


def test_a_reader_that_has_everything_gets_204(served: str, ended: Started, read: Open) -> None:
    whole = read(ended.run_id)
    whole.wait_until_ended()
    answer = httpx.get(f"{served}/runs/{ended.run_id}/stream", headers={"Last-Event-ID": str(whole.ids[-1])})
    assert (answer.status_code, answer.content) == (204, b"")


def test_the_header_of_a_reconnect_wins_over_the_address_of_the_first_connect(ended: Started, read: Open) -> None:
    reader = read(ended.run_id, "4", query="?last_event_id=1")
    reader.wait_until_ended()
    assert reader.ids[0] == 5


def test_a_reader_joining_midway_sees_every_entry_once(
    workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime, read: Open
) -> None:
    gated.steps = [answers("one "), answers("two "), answers("three")]
    started = workbench.ask(user, gated_session.uuid, "hello")
    early = read(started.run_id)
    gated.release(1)
    early.wait_for_text("one ")
    late = read(started.run_id)
    late.wait_for_text("one ")
    back = read(started.run_id, str(early.ids[-1]))
    gated.release()
    for reader in (early, late, back):
        reader.wait_until_ended()
    assert early.blocks == late.blocks
    assert early.text == "one two three"
    assert back.text == "two three"
    assert [block for block in early.blocks if block.id >= back.ids[0]] == back.blocks


def test_a_reader_cut_again_and_again_has_every_entry_exactly_once(
    workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime, read: Open
) -> None:
    gated.steps = [step for number in range(8) for step in (answers(f"<{number}>"), calls_tool(f"tool{number}"))]
    started = workbench.ask(user, gated_session.uuid, "hello")
    seen: list[int] = []
    for step in range(len(gated.steps)):
        reader = read(started.run_id, str(seen[-1]) if seen else None)
        gated.release(1)
        wanted = 1 if step % 2 == 0 else 2
        reader.wait_for(blocks=wanted)
        seen += reader.ids
        reader.close()
    gated.release()
    wait_until_ended(workbench, user, started.run_id)
    last = read(started.run_id, str(seen[-1]))
    last.wait_until_ended()
    seen += last.ids
    assert seen == [entry.seq for entry in all_entries(workbench, user, started.run_id)]


def test_each_run_of_a_continued_message_has_its_own_stream(
    workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime, read: Open
) -> None:
    gated.steps = [answers("half")]
    first = workbench.ask(user, gated_session.uuid, "hello")
    gated.wait_until_started()
    workbench.stop(user, first.run_id)
    wait_until_ended(workbench, user, first.run_id)
    gated.release()
    second = workbench.continue_run(user, first.message_uuid)
    wait_until_ended(workbench, user, second.run_id)

    of_first, of_second = read(first.run_id), read(second.run_id)
    of_first.wait_until_ended()
    of_second.wait_until_ended()
    last_of_first = of_first.ids[-1]
    assert of_first.blocks[-1].data["status"] == "STOPPED"
    assert of_second.ids[0] == last_of_first + 1
    assert of_second.blocks[0].data["kind"] == "run_started"

    foreign = read(second.run_id, str(last_of_first))
    foreign.wait_until_ended()
    assert foreign.blocks[0].event == "resync"
    assert foreign.blocks[1:] == of_second.blocks
    too_high = read(first.run_id, str(of_second.ids[0]))
    too_high.wait_until_ended()
    assert too_high.blocks[0].event == "resync"
    assert too_high.blocks[1:] == of_first.blocks
    gone_on = read(second.run_id, str(of_second.ids[0]))
    gone_on.wait_until_ended()
    assert gone_on.blocks == of_second.blocks[1:]


def test_a_cursor_inside_joined_or_dropped_entries_gets_a_resync(
    workbench: Workbench, user: User, ended: Started, read: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Housekeeping leaves rows that stand for several numbers, and numbers without a row."""
    entries = all_entries(workbench, user, ended.run_id)
    last = entries[-1].seq
    condensed = [
        entries[0],
        replace(entries[1], seq=2, seq_to=5, kind="thinking", content="joined"),
        entries[5],
        entries[-1],
    ]

    def stored(user: User, run_id: str, after: int = 0, limit: int = 500) -> list[LogEntry]:
        return [entry for entry in condensed if entry.seq > after][:limit]

    monkeypatch.setattr(workbench, "entries", stored)
    whole = read(ended.run_id)
    whole.wait_until_ended()
    assert whole.ids == [1, 5, 6, last]
    assert (whole.blocks[1].data["seq"], whole.blocks[1].data["seq_to"]) == (2, 5)
    for cursor, expected in ((1, whole.blocks[1:]), (5, whole.blocks[2:]), (last - 1, whole.blocks[3:])):
        reader = read(ended.run_id, str(cursor))
        reader.wait_until_ended()
        assert reader.blocks == expected
    for cursor in (2, 3, 4, 6, 7):
        reader = read(ended.run_id, str(cursor))
        reader.wait_until_ended()
        assert reader.blocks[0].event == "resync", cursor
        assert reader.blocks[1:] == whole.blocks


# -- many readers ------------------------------------------------------------------------------------------------


def test_two_readers_and_the_log_hold_the_same_and_a_stalled_reader_slows_nobody(
    workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime, served: str, read: Open
) -> None:
    gated.steps = [step for number in range(1_500) for step in (answers(f"{number} "), emits("status", text="x" * 300))]
    started = workbench.ask(user, gated_session.uuid, "hello")
    url = httpx.URL(f"{served}/runs/{started.run_id}/stream")
    assert url.port is not None
    with socket.socket() as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        stalled.connect(("127.0.0.1", url.port))
        stalled.sendall(f"GET {url.path} HTTP/1.1\r\nHost: 127.0.0.1:{url.port}\r\n\r\n".encode())
        readers = [read(started.run_id) for _ in range(2)]
        gated.release()
        for reader in readers:
            reader.wait_until_ended()
        entries = all_entries(workbench, user, started.run_id)
        assert readers[0].blocks == readers[1].blocks
        assert readers[0].ids == [entry.seq for entry in entries]
        assert readers[0].text == "".join(f"{number} " for number in range(1_500))

        stalled.settimeout(10)
        received = b""
        while b"event: done" not in received:
            part = stalled.recv(65_536)
            assert part, "the stalled reader was cut off"
            received += part
    ids = [int(line[4:]) for line in received.decode("ascii").splitlines() if line.startswith("id: ")]
    assert ids == readers[0].ids


def test_a_long_log_is_read_in_bounded_pieces(
    workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime, read: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    gated.steps = [emits("status", text=str(number)) for number in range(3 * ENTRIES_AT_ONCE)]
    gated.release()
    started = workbench.ask(user, gated_session.uuid, "hello")
    wait_until_ended(workbench, user, started.run_id)
    sizes: list[int] = []
    entries = workbench.entries

    def counted(user: User, run_id: str, after: int = 0, limit: int = 500) -> list[LogEntry]:
        found = entries(user, run_id, after, limit)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(workbench, "entries", counted)
    reader = read(started.run_id)
    reader.wait_until_ended()
    assert len(reader.blocks) == 3 * ENTRIES_AT_ONCE + 2
    assert max(sizes) == ENTRIES_AT_ONCE
    assert len(sizes) == 4


def test_nothing_is_left_behind_by_readers_that_went(
    workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime, read: Open, streams: OpenStreams
) -> None:
    started = workbench.ask(user, gated_session.uuid, "hello")
    readers = [read(started.run_id) for _ in range(5)]
    for reader in readers:
        reader.wait_for(blocks=1)
    assert streams.count == 5
    for reader in readers:
        reader.close()
    gated.release()
    wait_until_ended(workbench, user, started.run_id)
    waiting = threading.Event()
    for _ in range(200):
        if streams.count == 0:
            break
        waiting.wait(0.05)
    assert streams.count == 0
    assert workbench._bus.reader_count() == 0


# -- waiting and ending ------------------------------------------------------------------------------------------


def test_a_silent_run_sends_comments_that_keep_the_connection(
    workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime, read: Open
) -> None:
    started = workbench.ask(user, gated_session.uuid, "hello")
    reader = read(started.run_id)
    reader.wait_for(blocks=1, comments=2)
    assert set(reader.comments) == {"keepalive"}
    gated.release()
    reader.wait_until_ended()
    assert reader.blocks[-1].event == "done"


def test_the_keepalive_is_sent_every_five_seconds_by_default() -> None:
    assert OpenStreams().keepalive_seconds == 5.0


def test_open_streams_end_at_once_when_the_app_stops_and_the_run_goes_on(
    workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime, read: Open, streams: OpenStreams
) -> None:
    streams.keepalive_seconds = 600.0
    started = workbench.ask(user, gated_session.uuid, "hello")
    readers = [read(started.run_id) for _ in range(3)]
    for reader in readers:
        reader.wait_for(blocks=1)
    streams.close()
    for reader in readers:
        reader.wait_until_ended()
        assert reader.status == 200
        assert reader.blocks[-1].event == "progress"
    assert workbench.run_state(user, started.run_id).status == "RUNNING"


def test_the_stream_of_a_deleted_session_ends(
    workbench: Workbench, user: User, gated_session: Session, gated: GatedRuntime, read: Open
) -> None:
    started = workbench.ask(user, gated_session.uuid, "hello")
    reader = read(started.run_id)
    reader.wait_for(blocks=1)
    workbench.delete_session(user, gated_session.uuid)
    reader.wait_until_ended()


def test_many_runs_with_many_readers_are_never_mixed(
    workbench: Workbench, user: User, gated: GatedRuntime, read: Open
) -> None:
    gated.steps = [echoes(), chunks(20, "."), echoes()]
    sessions = [workbench.create_session(user, runtime="gated") for _ in range(4)]
    runs = [workbench.ask(user, session.uuid, f"MARK{number}") for number, session in enumerate(sessions)]
    readers = [(number, read(run.run_id)) for number, run in enumerate(runs) for _ in range(3)]
    gated.release()
    for number, reader in readers:
        reader.wait_until_ended()
        assert reader.text == f"MARK{number}" + "." * 20 + f"MARK{number}"
