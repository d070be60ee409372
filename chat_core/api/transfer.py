"""Calls that take a session out as a file and bring one in."""

import re
from urllib.parse import quote

from starlette.responses import Response

from chat_core.api.endpoint import Call, Endpoint
from chat_core.api.wire import ExportQuery, SessionImported

_TYPES = {"md": "text/markdown; charset=utf-8", "json": "application/json"}
_NOT_IN_FILE_NAMES = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069/\\\\:*?\"<>|]+")


def export_session(call: Call, query: ExportQuery) -> Response:
    """Return the session as a Markdown or JSON file."""
    session = call.workbench.get_session(call.user, call.ids["session_id"])
    text = call.workbench.export(call.user, session.uuid, query.format, query.branch)
    return Response(
        text.encode("utf-8", "replace"),
        media_type=_TYPES[query.format],
        headers={"Content-Disposition": _as_file(session.title, query.format)},
    )


def import_session(call: Call, data: bytes) -> SessionImported:
    """Store the session of a JSON export; importing the same content again finds it."""
    session, created = call.workbench.import_session(call.user, data)
    return SessionImported(session_id=session.uuid, created=created)


def _as_file(title: str, ending: str) -> str:
    """Return the header that names the file after the title, in the two forms that browsers read (RFC 6266)."""
    name = _NOT_IN_FILE_NAMES.sub(" ", title).strip(" .")[:100] or "session"
    return f"attachment; filename=\"session.{ending}\"; filename*=UTF-8''{quote(f'{name}.{ending}', safe='')}"


ENDPOINTS = (
    # Before the path of one session, which would take "import" for an id.
    Endpoint("POST", "/sessions/import", import_session, status=201),
    Endpoint("GET", "/sessions/{session_id}/export", export_session, produces=("text/markdown", "application/json")),
)
