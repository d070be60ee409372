"""Which single calls were the slowest, and which brought the most text?"""

import pyarrow as pa

from chat_core.analytics.scope import Scope

LIMIT = 50


def read_slowest(scope: Scope) -> pa.Table:
    return _read(scope, "duration_ms")


def read_largest(scope: Scope) -> pa.Table:
    return _read(scope, "result_bytes")


def _read(scope: Scope, column: str) -> pa.Table:
    """The fifty calls with the highest value, with the link to their message."""
    return scope.table(
        f"""
        WITH top AS (
            SELECT * FROM ({scope.calls()}) WHERE {column} IS NOT NULL
            ORDER BY {column} DESC, log_id DESC LIMIT {LIMIT}
        )
        SELECT t.tool, t.duration_ms, t.result_bytes, t.outcome, t.args_preview AS arguments, t.error_text AS error,
               t.started_at, s.title, s.session_uuid, m.message_uuid, t.log_id
        FROM top t JOIN raw_session s ON s.id = t.session_id JOIN raw_message m ON m.id = t.message_id
        ORDER BY t.{column} DESC, t.log_id DESC
        """
    )
