"""Where did an agent go round in circles, and what did it burn?"""

import pyarrow as pa

from chat_core.analytics.charts.scorecard import looped_sql
from chat_core.analytics.scope import Scope

LIMIT = 200


def read(scope: Scope) -> pa.Table:
    """One row for each loop, the most burnt time first, 200 at most.

    `burnt_ms` is the time of the calls after the loop's first round. `burnt_tokens` is those calls' part of the
    run's tokens (an estimate: every call of a run counts the same).
    """
    return scope.table(
        f"""
        WITH again AS (SELECT * FROM ({scope.calls()}) WHERE {looped_sql(scope)})
        SELECT a.loop_kind, array_to_string(ANY_VALUE(a.loop_tools), ' · ') AS tools,
               ANY_VALUE(a.loop_length) AS length, COUNT(*) AS calls_again,
               COALESCE(SUM(a.duration_ms), 0)::BIGINT AS burnt_ms,
               CAST(ANY_VALUE(r.input_tokens + COALESCE(r.output_tokens, 0)) * COUNT(*)
                    / NULLIF(ANY_VALUE(r.calls), 0) AS BIGINT) AS burnt_tokens,
               MIN(a.started_at) AS started_at, ANY_VALUE(a.run_status) AS run_status,
               arg_min(a.args_preview, a.seq) AS arguments, s.session_uuid, m.message_uuid, ANY_VALUE(s.title) AS title
        FROM again a
        LEFT JOIN "run" r ON r.message_id = a.message_id AND r.run_id = a.run_id
        JOIN raw_session s ON s.id = a.session_id JOIN raw_message m ON m.id = a.message_id
        GROUP BY a.loop_id, a.loop_kind, s.session_uuid, m.message_uuid
        ORDER BY burnt_ms DESC, calls_again DESC, started_at LIMIT {LIMIT}
        """
    )


def read_by_tool(scope: Scope) -> pa.Table:
    """One row for each kind of loop and its tools: how many loops, how much they burnt."""
    return scope.table(
        f"""
        SELECT loop_kind, array_to_string(loop_tools, ' · ') AS tools, COUNT(DISTINCT loop_id) AS loops,
               COUNT(DISTINCT session_id) AS sessions, COUNT(*) AS calls_again,
               COALESCE(SUM(duration_ms), 0)::BIGINT AS burnt_ms
        FROM ({scope.calls()}) WHERE {looped_sql(scope)}
        GROUP BY ALL ORDER BY burnt_ms DESC, loops DESC, tools
        """
    )
