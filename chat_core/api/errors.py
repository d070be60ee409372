"""The one shape of an error answer, and which status each error of Parley has."""

import logging
from collections.abc import Mapping

from starlette.responses import Response

from chat_core.bridge.protocol import dump_json
from chat_core.errors import (
    BridgeUnavailable,
    Conflict,
    InvalidInput,
    LimitReached,
    NotFound,
    ParleyError,
    StoreUnavailable,
    TooLarge,
)

_log = logging.getLogger(__name__)

# Looked up along the class's bases, so a kind of Conflict has the status of Conflict.
STATUS: Mapping[type[ParleyError], int] = {
    InvalidInput: 400,
    NotFound: 404,
    Conflict: 409,
    TooLarge: 413,
    LimitReached: 429,
    BridgeUnavailable: 503,
    StoreUnavailable: 503,
}
_RETRY_AFTER_SECONDS = "5"


def status_of(error: Exception) -> int:
    """Return the HTTP status of an error; 500 for everything that has no own one."""
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)


def error_response(error: Exception) -> Response:
    """Return the answer to an error. What nobody foresaw is logged with its trace and told without it."""
    status = status_of(error)
    if status == 500 or not isinstance(error, ParleyError):
        _log.error("an API call failed", exc_info=error)
        return refusal(500, "internal", "Something went wrong here. The log of the service has the details.")
    headers = {"Retry-After": _RETRY_AFTER_SECONDS} if status in {429, 503} else None
    return refusal(status, error.code, error.message, detail=error.values, headers=headers)


def refusal(
    status: int,
    code: str,
    message: str,
    *,
    detail: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return `{"error": {code, message, detail?}}` with this status."""
    error: dict[str, object] = {"code": code, "message": message}
    if detail:
        error["detail"] = dict(detail)
    return Response(
        dump_json({"error": error}),
        status,
        headers={"Cache-Control": "no-store", **(headers or {})},
        media_type="application/json",
    )
