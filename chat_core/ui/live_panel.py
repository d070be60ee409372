"""The live panel of a run, and the folded record of a finished message.

Both are drawn by `assets/panel.js` from the run's entries. The live panel reads the run's event stream itself, so it
moves without any script run; the page hears of it only when the run has ended (`finished`) or when the stream cannot
be opened (`offline`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chat_core.models import LogEntry, Message, RunState, utc_text
from chat_core.ui.components import asset_url, component

_SCRIPT = "panel.js"


def live_panel(
    run: RunState,
    *,
    texts: Mapping[str, str],
    base: str = "",
    key: str | None = None,
    on_finished: Callable[[], None] | None = None,
    on_offline: Callable[[], None] | None = None,
    on_online: Callable[[], None] | None = None,
    fallback: bool = False,
    follow: bool = True,
) -> None:
    """Show a run as it works, in the place where its message will stand.

    `texts` are those under `panel.`; `base` is the path our routes stand under. Keep `key` the same between reruns:
    the panel then stays as it is. `on_finished` is called in the script run that follows the end of the run,
    `on_offline` when the stream could not be opened for five seconds. With `fallback` the page draws the run by other
    means: the panel only keeps trying, unseen, and `on_online` is called when it has the stream again. With
    `follow=False` the view stays where it is (somebody came to read another message) until the reader goes to the end.
    """
    component("panel")(
        key=key or f"live_{run.run_id}",
        data={
            "mode": "live",
            "module": asset_url(_SCRIPT, base),
            "base": base,
            "run": run.run_id,
            "message": run.message_uuid,
            "stopping": run.stop_requested,
            "fallback": fallback,
            "follow": follow,
            "texts": dict(texts),
        },
        on_finished_change=on_finished or _nothing,
        on_offline_change=on_offline or _nothing,
        on_online_change=on_online or _nothing,
    )


def record_panel(
    message: Message,
    *,
    line: str,
    texts: Mapping[str, str],
    entries: Sequence[LogEntry] | None = None,
    base: str = "",
    key: str | None = None,
    opened: bool = False,
) -> None:
    """Show what the agent did for a finished message, folded into one line that opens to everything in its order.

    `line` is the activity line ("Thought 12 s · 5 tools · 3/3 done"). Without `entries` the browser fetches the record
    when somebody opens it: that keeps long conversations light.
    """
    component("panel")(
        key=key or f"record_{message.uuid}",
        data={
            "mode": "record",
            "module": asset_url(_SCRIPT, base),
            "base": base,
            "message": message.uuid,
            "status": message.status,
            "line": line,
            "open": opened,
            "entries": None if entries is None else [_entry(entry) for entry in entries],
            "texts": dict(texts),
        },
        on_offline_change=_nothing,
    )


def _entry(entry: LogEntry) -> dict[str, Any]:
    return {
        "seq": entry.seq,
        "seq_to": entry.seq_to,
        "kind": entry.kind,
        "content": entry.content,
        "tool_name": entry.tool_name,
        "call_id": entry.call_id,
        "duration_ms": entry.duration_ms,
        "is_error": entry.is_error,
        "meta": entry.meta,
        "at": utc_text(entry.created_at),
    }


def _nothing() -> None:
    """A callback is what makes Streamlit know the name of an event."""
