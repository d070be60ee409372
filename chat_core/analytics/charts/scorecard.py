"""Which tools fail, and which cost the most lost time?"""

import pyarrow as pa

from chat_core.analytics.intervals import share_sql
from chat_core.analytics.scope import FINISHED, Scope


def lost_sql(scope: Scope) -> str:
    """True for a call whose time was lost: it failed, or it only went round in a loop (polling tools exempt)."""
    return f"(outcome = 'error' OR ({looped_sql(scope)}))"


def looped_sql(scope: Scope) -> str:
    """True for the calls of a loop after its first round, unless a polling tool is part of it."""
    polling = ", ".join("'" + name.replace("'", "''") + "'" for name in sorted(scope.polling_tools))
    exempt = f" AND NOT list_has_any(loop_tools, [{polling}])" if polling else ""
    return f"in_loop_again{exempt}"


def read(scope: Scope) -> pa.Table:
    """One row for each tool, the most lost time first."""
    finished, errors = f"COUNT(*) FILTER ({FINISHED})", "COUNT(*) FILTER (outcome = 'error')"
    return scope.table(
        f"""
        SELECT tool, COUNT(*) AS calls, COUNT(DISTINCT session_id) AS sessions, {finished} AS finished,
               {errors} AS errors, {share_sql(errors, finished, "error_rate")},
               quantile_cont(duration_ms, 0.5) AS p50_ms, quantile_cont(duration_ms, 0.95) AS p95_ms,
               quantile_cont(duration_ms, 0.99) AS p99_ms, COALESCE(SUM(duration_ms), 0)::BIGINT AS tool_ms,
               COALESCE(SUM(duration_ms) FILTER ({lost_sql(scope)}), 0)::BIGINT AS lost_ms,
               COUNT(*) FILTER ({looped_sql(scope)}) AS repeated,
               quantile_cont(result_bytes, 0.5) AS result_bytes_p50,
               COALESCE(SUM(result_bytes), 0)::BIGINT AS result_bytes, MAX(started_at) AS last_used
        FROM ({scope.calls()}) GROUP BY tool ORDER BY lost_ms DESC, calls DESC, tool
        """
    )
