"""Which part of a long conversation is shown: its end, or the surroundings of one message; each grows on request."""

from dataclasses import dataclass

from chat_core.ui.view_state import ViewState

WINDOW = 80
"""Messages shown at first, and added by each *Load earlier* and *Load later*: 40 turns."""


@dataclass(frozen=True, slots=True)
class Window:
    """`limit` messages, of which `later` may stand below the message that is looked for (None: the end is shown)."""

    limit: int
    later: int | None


def window_of(view: ViewState, session_id: str, message_id: str) -> Window:
    """Return how much of the session is wanted, with `message_id` as the message it is opened at (or empty)."""
    earlier, later = view.loaded.get((session_id, message_id), (0, 0))
    return Window(WINDOW * (1 + earlier + later), WINDOW // 2 + WINDOW * later if message_id else None)


def load_more(view: ViewState, session_id: str, message_id: str, *, earlier: int = 0, later: int = 0) -> None:
    """Let the window grow by so many windows upwards and downwards."""
    before = view.loaded.get((session_id, message_id), (0, 0))
    view.loaded[session_id, message_id] = (before[0] + earlier, before[1] + later)
