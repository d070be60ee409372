"""Which tool left its usual band on some day, and where did it begin?"""

from datetime import timedelta

import pyarrow as pa

from chat_core.analytics.filters import Window
from chat_core.analytics.scope import FINISHED, Scope

BAND_DAYS = 14
LEAST_CALLS = 10
"""Days with fewer finished calls say nothing, neither as a day nor as part of a band."""
LEAST_DAYS = 5
WIDTH = 3.0


def read(scope: Scope) -> pa.Table:
    """One row for each tool, day and measure outside its band, newest first.

    The band is the median of the tool's previous 14 days (those with enough calls), plus or minus three robust
    standard deviations (1.4826 times the median absolute deviation of those days) and at least three standard errors
    of the day itself, so that a few calls are no news. Durations are compared by their logarithm: twice as slow
    is as far away as twice as fast.
    """
    zone, window = scope.filters.zone, scope.window
    first_day = zone.day_of(window.start)
    wide = Window(zone.midnight(first_day - timedelta(days=BAND_DAYS)), window.end)
    local = zone.local_sql("started_at", wide.start, wide.end)
    # The standard error of a median of n values is 1.2533 sigma / sqrt(n); sigma is read from the quartiles.
    return scope.table(
        f"""
        WITH per_day AS (
            SELECT tool, CAST({local} AS DATE) AS day, COUNT(*) AS finished,
                   (COUNT(*) FILTER (outcome = 'error'))::DOUBLE / COUNT(*) AS error_rate,
                   quantile_cont(ln(duration_ms + 1), [0.25, 0.5, 0.75]) AS quartiles
            FROM ({scope.calls(wide)}) WHERE {FINISHED} GROUP BY ALL HAVING COUNT(*) >= {LEAST_CALLS}
        ),
        measured AS (
            SELECT tool, day, finished, 'error_rate' AS measure, error_rate AS value, NULL AS own_error FROM per_day
            UNION ALL
            SELECT tool, day, finished, 'p50_ms', quartiles[2],
                   1.2533 * (quartiles[3] - quartiles[1]) / 1.349 / sqrt(finished)
            FROM per_day
        ),
        banded AS (
            SELECT d.tool, d.day, d.measure, d.value, d.finished, d.own_error, COUNT(*) AS band_days,
                   median(b.value) AS usual, 1.4826 * mad(b.value) AS spread
            FROM measured d JOIN measured b ON b.tool = d.tool AND b.measure = d.measure
                AND b.day >= d.day - {BAND_DAYS} AND b.day < d.day
            WHERE d.day >= DATE '{first_day.isoformat()}'
            GROUP BY ALL HAVING COUNT(*) >= {LEAST_DAYS}
        ),
        reached AS (
            SELECT *, {WIDTH} * GREATEST(spread, COALESCE(own_error,
                       sqrt(GREATEST(usual, 1.0 / finished) * (1 - LEAST(usual, 0.999)) / finished))) AS reach
            FROM banded
        ),
        edges AS (
            SELECT tool, day, measure, finished, band_days,
                   {_unlogged("value")} AS value, {_unlogged("usual")} AS usual,
                   GREATEST({_unlogged("usual - reach")}, 0) AS band_low, {_unlogged("usual + reach")} AS band_high
            FROM reached WHERE value > usual + reach OR value < usual - reach
        ),
        firsts AS (
            SELECT o.tool, o.day, o.measure, arg_min(c.session_id, c.started_at) AS session_id,
                   arg_min(c.message_id, c.started_at) AS message_id
            FROM edges o JOIN (SELECT *, CAST({local} AS DATE) AS day FROM ({scope.calls(wide)}) WHERE {FINISHED}) c
                ON c.tool = o.tool AND c.day = o.day
            WHERE CASE WHEN o.value < o.usual THEN TRUE WHEN o.measure = 'error_rate' THEN c.outcome = 'error'
                       ELSE c.duration_ms > o.band_high END
            GROUP BY ALL
        )
        SELECT o.day, o.tool, o.measure, o.value, o.usual, o.band_low, o.band_high, o.finished, o.band_days,
               CASE WHEN o.value > o.usual THEN 'above' ELSE 'below' END AS direction,
               s.title, s.session_uuid, m.message_uuid
        FROM edges o LEFT JOIN firsts f ON f.tool = o.tool AND f.day = o.day AND f.measure = o.measure
        LEFT JOIN raw_session s ON s.id = f.session_id LEFT JOIN raw_message m ON m.id = f.message_id
        ORDER BY o.day DESC, o.tool, o.measure
        """
    )


def _unlogged(value: str) -> str:
    return f"CASE measure WHEN 'p50_ms' THEN exp({value}) - 1 ELSE {value} END"
