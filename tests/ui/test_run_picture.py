"""The picture of a run for the page's own drawing follows the entries, each once."""

from datetime import UTC, datetime
from typing import Any

from chat_core.models import EntryKind, LogEntry
from chat_core.ui.run_picture import RunPicture


def entry(seq: int, kind: EntryKind, content: str = "", **fields: Any) -> LogEntry:
    values: dict[str, Any] = {
        "seq_to": None,
        "tool_name": "",
        "call_id": "",
        "duration_ms": None,
        "is_error": False,
        "meta": {},
    } | fields
    return LogEntry(id=seq, message_id=1, seq=seq, kind=kind, content=content, created_at=datetime.now(UTC), **values)


def picture_of(*entries: LogEntry) -> RunPicture:
    picture = RunPicture()
    for each in entries:
        picture.apply(each)
    return picture


def test_an_entry_applied_twice_changes_nothing() -> None:
    first, second = entry(1, "answer", "Hel"), entry(2, "answer", "lo")
    assert picture_of(first, second, second, first).answer == "Hello"


def test_joined_entries_count_up_to_their_last_number() -> None:
    picture = picture_of(entry(1, "thinking", "abc", seq_to=9), entry(5, "thinking", "again"))
    assert (picture.after, picture.thinking) == (9, "abc")


def test_a_remark_before_tools_leaves_the_answer() -> None:
    picture = picture_of(entry(1, "answer", "Let me look."), entry(2, "answer_break"), entry(3, "answer", "Found."))
    assert picture.answer == "Found."


def test_tools_are_matched_by_call_and_the_last_open_one_is_current() -> None:
    picture = picture_of(
        entry(1, "tool_call", "{}", tool_name="a", call_id="1"),
        entry(2, "tool_call", "{}", tool_name="b", call_id="2"),
        entry(3, "tool_result", "ok", tool_name="b", call_id="2", duration_ms=5),
        entry(4, "tool_result", "lost", tool_name="x", call_id="unknown"),
    )
    assert [(tool.name, tool.is_done, tool.result) for tool in picture.tools] == [("a", False, ""), ("b", True, "ok")]
    assert picture.current_tool is not None
    assert picture.current_tool.name == "a"


def test_broken_todo_lists_are_no_todos() -> None:
    assert picture_of(entry(1, "todo_update", "{nonsense")).todos == []
    assert picture_of(entry(1, "todo_update", '["text", {"content": "a"}]')).todos == [{"content": "a"}]


def test_every_end_is_an_end() -> None:
    for kind in ("run_finished", "run_failed", "run_stopped", "run_interrupted"):
        assert picture_of(entry(1, kind)).has_ended  # type: ignore[arg-type]


def test_thinking_is_kept_short() -> None:
    assert len(picture_of(*(entry(seq, "thinking", "x" * 100) for seq in range(1, 200))).thinking) == 2000
