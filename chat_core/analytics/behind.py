"""The sessions behind a number: every number of every chart names the calls, runs or questions it counts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import pyarrow as pa

from chat_core.analytics.charts.after_error import CATEGORY
from chat_core.analytics.charts.scorecard import looped_sql, lost_sql
from chat_core.analytics.charts.sequences import LINK
from chat_core.analytics.filters import Values, Window
from chat_core.analytics.scope import FINISHED, Scope
from chat_core.errors import InvalidInput

LIMIT = 200

Fact = Literal["call", "run", "question"]


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Further conditions on the rows of one fact table, each by its name and a value as text."""

    fact: Fact = "call"
    conditions: Mapping[str, str] | None = None

    def to_text(self) -> str:
        """One text for a URL: `call;tool=terminal;outcome=error`."""
        parts = [f"{name}={_escape(value)}" for name, value in sorted((self.conditions or {}).items())]
        return ";".join([self.fact, *parts])

    @classmethod
    def from_text(cls, text: str) -> "Narrowing":
        """Read it back. Raises `InvalidInput` for what is not one."""
        fact, *parts = text[:2000].split(";")
        if fact not in ("call", "run", "question"):
            raise InvalidInput(f"{fact!r} is no fact table; choose call, run or question.", name="behind")
        conditions = {}
        for part in parts:
            name, separator, value = part.partition("=")
            if not separator or name not in _CONDITIONS[_fact(fact)]:
                raise InvalidInput(f"{part!r} is no condition on a {fact}.", name="behind")
            conditions[name] = _unescape(value)
        return cls(_fact(fact), conditions)


def _fact(name: str) -> Fact:
    return "run" if name == "run" else "question" if name == "question" else "call"


def _escape(value: str) -> str:
    return value.replace("%", "%25").replace(";", "%3B").replace("=", "%3D")


def _unescape(value: str) -> str:
    return value.replace("%3D", "=").replace("%3B", ";").replace("%25", "%")


def read(scope: Scope, narrowing: Narrowing, period: Literal["now", "before"] = "now") -> pa.Table:
    """One row for each session, the newest first, 200 at most, with the first matching message to open.

    `rows` counts the calls (or runs, or questions) of the session that match; `total_rows` and `total_sessions`
    are of all sessions, also of those beyond the 200.
    """
    window = scope.filters.window_before(scope.now) if period == "before" else None
    sources: dict[Fact, Callable[[Window | None], str]] = {
        "call": scope.calls,
        "run": scope.runs,
        "question": scope.questions,
    }
    moment = "asked_at" if narrowing.fact == "question" else "started_at"
    duration = "wait_ms" if narrowing.fact == "question" else "duration_ms"
    errors = {"call": "outcome = 'error'", "run": "status = 'FAILED'", "question": "denied"}[narrowing.fact]
    conditions, values = ["TRUE"], Values()
    for name, value in (narrowing.conditions or {}).items():
        conditions.append(_CONDITIONS[narrowing.fact][name](scope, f"$n_{name}"))
        values[f"n_{name}"] = _typed(name, value)
    return scope.table(
        f"""
        WITH matching AS (SELECT * FROM ({sources[narrowing.fact](window)}) WHERE {" AND ".join(conditions)}),
        per_session AS (
            SELECT session_id, COUNT(*) AS rows, COUNT(*) FILTER ({errors}) AS errors,
                   COALESCE(SUM({duration}), 0)::BIGINT AS total_ms, MAX({moment}) AS last_at,
                   arg_min(message_id, {moment}) AS message_id
            FROM matching GROUP BY session_id
        )
        SELECT s.title, p.rows, p.errors, p.total_ms, p.last_at, s.session_uuid, m.message_uuid,
               SUM(p.rows) OVER ()::BIGINT AS total_rows, COUNT(*) OVER () AS total_sessions
        FROM per_session p JOIN raw_session s ON s.id = p.session_id JOIN raw_message m ON m.id = p.message_id
        ORDER BY p.last_at DESC, s.id DESC LIMIT {LIMIT}
        """,
        **values,
    )


def _typed(name: str, value: str) -> object:
    try:
        if name in {"weekday", "hour", "step", "min_ms"}:
            return int(value)
        if name in {"since", "until"}:
            return datetime.fromisoformat(value).replace(tzinfo=None)
    except ValueError:
        raise InvalidInput(f"{value!r} cannot be a value of {name}.", name="behind") from None
    return value


_Condition = Callable[[Scope, str], str]


def _equals(column: str) -> _Condition:
    return lambda _scope, value: f"{column} = {value}"


def _flag(sql: Callable[[Scope], str]) -> _Condition:
    # The value takes part so that the query names it; "no" means the opposite.
    return lambda scope, value: f"({sql(scope)}) = ({value} <> 'no')"


def _of_call_runs(condition: str) -> _Condition:
    return lambda _scope, value: (
        f'run_id IN (SELECT run_id FROM "call" WHERE owner = $owner AND {condition.format(value=value)})'
    )


_COMMON: dict[str, _Condition] = {
    "model": _equals("model_id"),
    "skill": _equals("skill_folder"),
    "runtime": _equals("runtime"),
}
_CONDITIONS: dict[Fact, dict[str, _Condition]] = {
    "call": {
        **_COMMON,
        "tool": _equals("tool"),
        "outcome": _equals("outcome"),
        "next_tool": _equals("next_tool"),
        "reaction": lambda _scope, value: f"outcome = 'error' AND {CATEGORY} = {value}",
        "finished": _flag(lambda _scope: FINISHED),
        "timed": _flag(lambda _scope: "duration_ms IS NOT NULL"),
        "lost": _flag(lost_sql),
        "looped": _flag(looped_sql),
        "loop_kind": _equals("loop_kind"),
        "loop_tools": _equals("array_to_string(loop_tools, ' · ')"),
        "weekday": lambda scope, value: f"isodow({scope.local('started_at')}) = {value}",
        "hour": lambda scope, value: f"hour({scope.local('started_at')}) = {value}",
        "since": lambda _scope, value: f"started_at >= {value}",
        "until": lambda _scope, value: f"started_at < {value}",
        "min_ms": lambda _scope, value: f"duration_ms >= {value}",
    },
    "run": {
        **_COMMON,
        "status": _equals("status"),
        # Step, tool and what followed, as one text: "2:terminal>read_file".
        "link": _of_call_runs(f"{LINK} = {{value}}"),
    },
    "question": {**_COMMON, "kind": _equals("kind"), "status": _equals("status"), "denied": _flag(lambda _s: "denied")},
}
