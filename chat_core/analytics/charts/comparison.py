"""Which model, skill or runtime works better, over the same period?"""

import pyarrow as pa

from chat_core.analytics.intervals import mean_sql, median_sql, share_sql
from chat_core.analytics.scope import Scope


def read_models(scope: Scope) -> pa.Table:
    return _read(scope, "model_id")


def read_skills(scope: Scope) -> pa.Table:
    return _read(scope, "skill_folder")


def read_runtimes(scope: Scope) -> pa.Table:
    return _read(scope, "runtime")


def _read(scope: Scope, column: str) -> pa.Table:
    """One row for each value. Success is the share of the ended runs that ended well; running ones are left out."""
    ended = "COUNT(*) FILTER (status <> 'RUNNING')"
    finished_calls = "COALESCE(SUM(c.finished), 0)"
    errors = "COALESCE(SUM(c.errors), 0)"
    return scope.table(
        f"""
        WITH per_run AS (
            SELECT run_id, message_id, COUNT(*) AS calls, COUNT(*) FILTER (outcome IN ('ok', 'error')) AS finished,
                   COUNT(*) FILTER (outcome = 'error') AS errors
            FROM "call" WHERE owner = $owner GROUP BY run_id, message_id
        ),
        joined AS (
            SELECT r.{column} AS value, r.status, r.session_id, COALESCE(c.calls, 0) AS calls, c.finished, c.errors,
                   r.duration_ms::DOUBLE AS duration_ms, r.input_tokens + COALESCE(r.output_tokens, 0) AS tokens
            FROM ({scope.runs()}) r LEFT JOIN per_run c ON c.run_id = r.run_id AND c.message_id = r.message_id
        )
        SELECT value, COUNT(*) AS runs, {ended} AS ended, COUNT(DISTINCT session_id) AS sessions,
               COALESCE(SUM(c.calls), 0)::BIGINT AS calls, {mean_sql("c.calls::DOUBLE", "calls_per_run")},
               {finished_calls}::BIGINT AS finished_calls, {errors}::BIGINT AS errors,
               {share_sql(errors, finished_calls, "error_rate")},
               {median_sql("duration_ms", "run_ms")},
               {share_sql("COUNT(*) FILTER (status = 'SUCCESS')", ended, "success")},
               quantile_cont(tokens, 0.5) AS tokens_p50
        FROM joined c GROUP BY value ORDER BY runs DESC, value
        """
    )
