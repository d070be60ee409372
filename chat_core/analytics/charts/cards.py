"""How much was called, how well did it go, and what did it cost in time?"""

import pyarrow as pa

from chat_core.analytics.scope import FINISHED, Scope


def read(scope: Scope) -> pa.Table:
    """Two rows at most: `now` and, when there is a period before, `before`."""
    parts = []
    before = scope.filters.window_before(scope.now)
    for period, window in (("now", scope.window), ("before", before)):
        if window is None:
            continue
        parts.append(
            f"""
            SELECT '{period}' AS period, c.*, q.waiting_ms FROM (
                SELECT COUNT(*) AS calls, COUNT(DISTINCT session_id) AS sessions,
                       COUNT(*) FILTER ({FINISHED}) AS finished, COUNT(*) FILTER (outcome = 'error') AS errors,
                       (COUNT(*) FILTER (outcome = 'error'))::DOUBLE / NULLIF(COUNT(*) FILTER ({FINISHED}), 0)
                           AS error_rate,
                       quantile_cont(duration_ms, 0.5) AS p50_ms, quantile_cont(duration_ms, 0.95) AS p95_ms,
                       COALESCE(SUM(duration_ms), 0)::BIGINT AS tool_ms
                FROM ({scope.calls(window)})
            ) c, (SELECT COALESCE(SUM(wait_ms), 0)::BIGINT AS waiting_ms FROM ({scope.questions(window)})) q
            """
        )
    return scope.table(f"SELECT * FROM ({' UNION ALL '.join(parts)}) ORDER BY period DESC")
