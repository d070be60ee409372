"""The errors of Parley: each has a stable code, a plain sentence and the values the sentence names."""

from typing import ClassVar


class ParleyError(Exception):
    """Something a person can be told about.

    `code` is stable (pages translate it as `error.<code>`, the API returns it); `values` fill the sentence.
    Neither ever holds a secret.
    """

    code: ClassVar[str] = "internal"

    def __init__(self, message: str, **values: object) -> None:
        super().__init__(message)
        self.message = message
        self.values = values


class InvalidInput(ParleyError):
    """The caller sent something that cannot be right; the message says what and why."""

    code = "invalid_input"


class TooLarge(ParleyError):
    """The caller sent more than is accepted; the message names the limit."""

    code = "too_large"


class NotFound(ParleyError):
    """There is no such thing, or it belongs to somebody else: the two are not told apart."""

    code = "not_found"


class Conflict(ParleyError):
    """The request was right, but something else came first."""

    code = "conflict"


class SessionBusy(Conflict):
    """The session already has a run at work."""

    code = "session_busy"


class AlreadyAnswered(Conflict):
    """Another answer was recorded before; `values["answer"]` is that answer."""

    code = "already_answered"


class QuestionClosed(Conflict):
    """The question can no longer be answered because its run has ended."""

    code = "question_closed"


class LimitReached(ParleyError):
    """Too many active runs; the caller may try again later."""

    code = "limit_reached"


class BridgeUnavailable(ParleyError):
    """The Bridge cannot be reached (not installed, starting, down, or cut off)."""

    code = "bridge_unavailable"


class RunUnknown(ParleyError):
    """The Bridge does not hold this run (it was restarted, or the run ended long ago)."""

    code = "run_unknown"


class LeaseLost(ParleyError):
    """This worker no longer holds the run, so it may not write to it."""

    code = "lease_lost"


class StoreUnavailable(ParleyError):
    """The database cannot be used (in use by another Parley, unreadable, newer, corrupt, disk full)."""

    code = "store_unavailable"


class SettingsError(ParleyError):
    """A setting is wrong; the message names it, the problem with its value, and an example."""

    code = "settings"
