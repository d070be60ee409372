"""How long do calls take, and how far do they spread?"""

import pyarrow as pa

from chat_core.analytics.scope import Scope

STEPS_PER_DECADE = 6


def read(scope: Scope) -> pa.Table:
    """One row for each tool: percentiles of the finished calls, the slowest tool (by p95) first."""
    quantiles = ", ".join(f"quantile_cont(duration_ms, {q / 100}) AS p{q}_ms" for q in (5, 25, 50, 75, 95, 99))
    return scope.table(
        f"""
        SELECT tool, COUNT(*) AS finished, MIN(duration_ms) AS min_ms, {quantiles}, MAX(duration_ms) AS max_ms
        FROM ({scope.calls()}) WHERE duration_ms IS NOT NULL GROUP BY tool ORDER BY p95_ms DESC, tool
        """
    )


def read_distribution(scope: Scope) -> pa.Table:
    """One row for each tool and bin; bins are equal on a log scale, six to a power of ten, the first from 0 to 1 ms."""
    bin_number = f"CASE WHEN duration_ms < 1 THEN -1 ELSE floor(log10(duration_ms) * {STEPS_PER_DECADE} + 1e-9) END"
    return scope.table(
        f"""
        SELECT tool, CASE WHEN bin < 0 THEN 0 ELSE pow(10, bin / {STEPS_PER_DECADE}) END AS from_ms,
               CASE WHEN bin < 0 THEN 1 ELSE pow(10, (bin + 1) / {STEPS_PER_DECADE}) END AS to_ms,
               COUNT(*) AS calls
        FROM (SELECT tool, {bin_number} AS bin FROM ({scope.calls()}) WHERE duration_ms IS NOT NULL)
        GROUP BY tool, bin ORDER BY tool, bin
        """
    )
