"""What a chart's numbers are made of: zone, window, rows counted, rows left out and why, last row seen."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from chat_core.analytics.scope import Scope

Basis = Literal["calls", "runs", "questions"]


@dataclass(frozen=True, slots=True)
class Footer:
    """Stands under every chart. `left_out` holds only reasons that have rows.

    Reasons: `running`, `cut` (counted as calls, but in no rate and no duration), `other_branch` (on a version that
    is not chosen), `orphan` (a result without its call), `unreadable` (a row without a readable time).
    """

    zone: str
    start: datetime
    end: datetime
    basis: Basis
    counted: int
    left_out: dict[str, int]
    last_log_id: int
    last_at: datetime | None
    synced_at: datetime | None


def read_footer(scope: Scope, basis: Basis = "calls") -> Footer:
    rows = {"calls": scope.calls, "runs": scope.runs, "questions": scope.questions}[basis]()
    state = {"calls": "outcome", "runs": "status", "questions": "status"}[basis]
    counts = {
        str(name): int(str(count))
        for name, count in scope.rows(f"SELECT lower({state}), COUNT(*) FROM ({rows}) GROUP BY ALL")
    }
    left_out = {name: counts[name] for name in ("running", "waiting", "cut") if counts.get(name)}
    if scope.filters.branches == "active":
        everywhere = rows.replace("AND on_active_branch", "AND NOT on_active_branch")
        left_out["other_branch"] = _count(scope, f"SELECT COUNT(*) FROM ({everywhere})")
    if basis == "calls":
        left_out.update(_unusable(scope))
    last = scope.rows(
        "SELECT (SELECT log_id FROM state), (SELECT synced_at FROM state),"
        ' (SELECT MAX(COALESCE(ended_at, started_at)) FROM "call" WHERE owner = $owner)'
    )[0]
    return Footer(
        zone=scope.filters.zone.name,
        start=scope.window.start,
        end=scope.window.end,
        basis=basis,
        counted=sum(counts.values()),
        left_out={name: count for name, count in left_out.items() if count},
        last_log_id=int(str(last[0] or 0)),
        last_at=_utc(last[2], scope),
        synced_at=_utc(last[1], scope),
    )


def _unusable(scope: Scope) -> dict[str, int]:
    """Rows that cannot be a call; they count where no tool or outcome is chosen, or their tool is."""
    if scope.filters.outcomes:
        return {}
    conditions, _ = scope.filters.call_conditions(with_calls_only=False)
    tool = " AND tool IN (SELECT unnest($f_tools))" if scope.filters.tools else ""
    when = f"(started_at IS NULL OR {scope.window.sql('started_at')})"
    found = scope.rows(
        f'SELECT reason, COUNT(*) FROM "left_out" WHERE owner = $owner AND {when} AND {conditions}{tool}'
        " GROUP BY reason"
    )
    return {str(reason): int(str(count)) for reason, count in found}


def _count(scope: Scope, sql: str) -> int:
    return int(str(scope.rows(sql)[0][0]))


def _utc(moment: object, scope: Scope) -> datetime | None:
    return moment.replace(tzinfo=scope.now.tzinfo) if isinstance(moment, datetime) else None
