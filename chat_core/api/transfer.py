"""Calls that take a session out as a file and bring one in."""

from urllib.parse import quote

from starlette.responses import Response

from chat_core.api.endpoint import Call, Endpoint
from chat_core.api.wire import ExportQuery, SessionImported, SessionsToExport
from chat_core.exports.file_name import file_name

_TYPES = {"md": "text/markdown; charset=utf-8", "json": "application/json"}


def export_session(call: Call, query: ExportQuery) -> Response:
    """Return the session as a Markdown or JSON file."""
    session = call.workbench.get_session(call.user, call.ids["session_id"])
    text = call.workbench.export(call.user, session.uuid, query.format, query.branch)
    return Response(
        text.encode("utf-8", "replace"),
        media_type=_TYPES[query.format],
        headers={"Content-Disposition": _as_file(session.title, query.format)},
    )


def export_sessions(call: Call, body: SessionsToExport) -> Response:
    """Return many sessions as one zip archive, a file for each, whole trees."""
    data = call.workbench.export_many(call.user, body.session_ids, body.format)
    headers = {"Content-Disposition": 'attachment; filename="sessions.zip"'}
    return Response(data, media_type="application/zip", headers=headers)


def import_session(call: Call, data: bytes) -> SessionImported:
    """Store the session of a JSON export; importing the same content again finds it."""
    session, created = call.workbench.import_session(call.user, data)
    return SessionImported(session_id=session.uuid, created=created)


def _as_file(title: str, ending: str) -> str:
    """Return the header that names the file after the title, in the two forms that browsers read (RFC 6266)."""
    return f"attachment; filename=\"session.{ending}\"; filename*=UTF-8''{quote(file_name(title, ending), safe='')}"


ENDPOINTS = (
    # Before the path of one session, which would take "import" for an id.
    Endpoint("POST", "/sessions/import", import_session, status=201),
    Endpoint("POST", "/sessions/export", export_sessions, errors=(404,), produces=("application/zip",)),
    Endpoint("GET", "/sessions/{session_id}/export", export_session, produces=("text/markdown", "application/json")),
)
