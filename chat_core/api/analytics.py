"""Calls about the statistics: each chart of the page as JSON or CSV, with the page's filters."""

import datetime
from collections.abc import Mapping
from typing import Any

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from chat_core.analytics.analytics import ChartData
from chat_core.analytics.behind import Narrowing
from chat_core.analytics.catalog import CHARTS
from chat_core.analytics.files import as_csv
from chat_core.analytics.filters import Filters, read_filters
from chat_core.analytics.footer import Footer
from chat_core.api.endpoint import GetWorkbench, method_refused
from chat_core.api.errors import error_response
from chat_core.bridge.protocol import dump_json
from chat_core.errors import InvalidInput
from chat_core.models import LOCAL_USER, utc_text
from chat_core.workbench import Workbench

PATH = "/api/analytics"
FILTER_NAMES = (
    "range", "from", "to", "zone", "tool", "model", "skill", "runtime", "session", "outcome", "branches", "bucket",
    "polling",
)  # fmt: skip
REPEATED = frozenset({"tool", "model", "skill", "runtime", "outcome", "polling"})
OWN_NAMES = ("format", "sync", "behind")
CALL_THREADS = 4


def analytics_routes(get_workbench: GetWorkbench, *, base_path: str = "") -> list[Route]:
    """Return `GET /api/analytics` (the names of the charts) and `GET /api/analytics/{chart}`.

    `sessions` beside the charts' names: the sessions behind a number, named by `behind=call;tool=terminal`.
    """
    base = base_path.strip("/")
    prefix = f"/{base}{PATH}" if base else PATH
    limiter = anyio.CapacityLimiter(CALL_THREADS)
    return [
        Route(prefix, _Calls(get_workbench, limiter)),
        Route(f"{prefix}/{{chart}}", _Calls(get_workbench, limiter)),
    ]


def analytics_operations() -> dict[str, dict[str, Any]]:
    """Return the OpenAPI operations of the two paths."""
    text = {"schema": {"type": "string"}}
    many = {"schema": {"type": "array", "items": {"type": "string"}}, "style": "form", "explode": True}
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}}
    answer = {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {
                    "chart": {"type": "string"},
                    "footer": {"type": "object"},
                    "columns": {"type": "array", "items": {"type": "string"}},
                    "rows": {"type": "array", "items": {"type": "object"}},
                },
                "required": ["chart", "footer", "columns", "rows"],
            }
        },
        "text/csv": text,
    }
    return {
        PATH: {
            "get": {
                "operationId": "list_charts",
                "summary": "List the charts of the statistics.",
                "parameters": [],
                "responses": {"200": {"description": "Their names, and those of the filters."}},
            }
        },
        PATH + "/{chart}": {
            "get": {
                "operationId": "read_chart",
                "summary": "Return one chart of the statistics, as JSON or CSV.",
                "parameters": [
                    {"name": "chart", "in": "path", "required": True, **text},
                    *(
                        {"name": name, "in": "query", "required": False, **(many if name in REPEATED else text)}
                        for name in (*FILTER_NAMES, *OWN_NAMES)
                    ),
                ],
                "responses": {
                    "200": {"description": "The rows, and what they are made of.", "content": answer},
                    **{
                        status: {"description": reason, "content": error}
                        for status, reason in (
                            ("400", "A parameter is wrong; the message says which and why."),
                            ("404", "There is no such chart."),
                            ("503", "The statistics cannot be read now."),
                        )
                    },
                },
            }
        },
    }


class _Calls:
    def __init__(self, get_workbench: GetWorkbench, limiter: anyio.CapacityLimiter) -> None:
        self._get_workbench = get_workbench
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method not in {"GET", "HEAD"}:
            await method_refused(request.method, ["GET"])(scope, receive, send)
            return
        try:
            response = await anyio.to_thread.run_sync(self._answer, request, limiter=self._limiter)
        except Exception as error:
            response = error_response(error)
        await response(scope, receive, send)

    def _answer(self, request: Request) -> Response:
        if "chart" not in request.path_params:
            return _json({"charts": [*CHARTS, "sessions"], "filters": list(FILTER_NAMES)})
        query = {name: request.query_params.getlist(name) for name in request.query_params}
        unknown = sorted(set(query) - {*FILTER_NAMES, *OWN_NAMES})
        if unknown:
            known = ", ".join((*FILTER_NAMES, *OWN_NAMES))
            raise InvalidInput(f"There is no parameter {unknown[0]!r}; there are {known}.", name=unknown[0])
        answer_format = query.get("format", ["json"])[-1]
        if answer_format not in {"json", "csv"}:
            raise InvalidInput(f"format={answer_format!r} is not known; choose from json, csv.", name="format")
        return chart_response(
            self._get_workbench(),
            str(request.path_params["chart"]),
            read_filters(query, strict=True),
            as_csv_file=answer_format == "csv",
            sync_first=query.get("sync", ["1"])[-1] != "0",
            behind=query.get("behind", ["call"])[-1],
        )


def chart_response(
    workbench: Workbench, name: str, filters: Filters, *, as_csv_file: bool, sync_first: bool, behind: str
) -> Response:
    analytics, user = workbench.analytics, LOCAL_USER
    if sync_first:
        analytics.sync(user)
    if name == "sessions":
        table = analytics.sessions_behind(user, filters, Narrowing.from_text(behind))
        footer: Mapping[str, Any] = {}
    else:
        data: ChartData = analytics.chart(user, name, filters)
        table, footer = data.table, _footer(data.footer)
    if as_csv_file:
        headers = {
            "Cache-Control": "no-store",
            "Content-Disposition": f'attachment; filename="parley-{name}.csv"',
        }
        return Response(as_csv(table), media_type="text/csv; charset=utf-8", headers=headers)
    rows = [{key: _value(key, value) for key, value in row.items()} for row in table.to_pylist()]
    return _json({"chart": name, "footer": footer, "columns": table.column_names, "rows": rows})


def _footer(footer: Footer) -> dict[str, Any]:
    return {
        "zone": footer.zone,
        "start": utc_text(footer.start),
        "end": utc_text(footer.end),
        "counts": footer.basis,
        "counted": footer.counted,
        "left_out": footer.left_out,
        "last_log_id": footer.last_log_id,
        "last_at": utc_text(footer.last_at) if footer.last_at else None,
        "synced_at": utc_text(footer.synced_at) if footer.synced_at else None,
    }


def _value(column: str, value: object) -> object:
    """Times are UTC, except `bucket`, which is the wall clock of the zone; days are days."""
    if isinstance(value, datetime.datetime):
        return value.isoformat(timespec="milliseconds") + ("" if column == "bucket" else "Z")
    return value.isoformat() if isinstance(value, datetime.date) else value


def _json(value: object) -> Response:
    return Response(dump_json(value), headers={"Cache-Control": "no-store"}, media_type="application/json")
