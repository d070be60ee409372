"""When in the week are tools used, and when do they fail?"""

import pyarrow as pa

from chat_core.analytics.scope import FINISHED, Scope


def read(scope: Scope) -> pa.Table:
    """One row for each weekday (1 is Monday) and hour of the viewer's zone that has calls."""
    local = scope.local("started_at")
    return scope.table(
        f"""
        SELECT isodow({local})::INTEGER AS weekday, hour({local})::INTEGER AS hour, COUNT(*) AS calls,
               COUNT(*) FILTER ({FINISHED}) AS finished, COUNT(*) FILTER (outcome = 'error') AS errors,
               (COUNT(*) FILTER (outcome = 'error'))::DOUBLE / NULLIF(COUNT(*) FILTER ({FINISHED}), 0) AS error_rate
        FROM ({scope.calls()}) GROUP BY ALL ORDER BY weekday, hour
        """
    )
