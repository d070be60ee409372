"""How often is a person asked, and how long does the agent wait?"""

import pyarrow as pa

from chat_core.analytics.scope import Scope


def read(scope: Scope) -> pa.Table:
    """One row for each kind of question. A closed question's run ended before anybody answered.

    Times to answer are those of answered questions; `waiting_ms` adds the wait of closed ones. Open questions count
    in neither.
    """
    answered = "FILTER (status = 'ANSWERED')"
    return scope.table(
        f"""
        SELECT kind, COUNT(*) AS asked, COUNT(*) {answered} AS answered, COUNT(*) FILTER (status = 'CLOSED') AS closed,
               COUNT(*) FILTER (status = 'WAITING') AS open, COUNT(*) FILTER (denied) AS denied,
               COUNT(DISTINCT session_id) AS sessions,
               quantile_cont(wait_ms, 0.5) {answered} AS p50_answer_ms,
               quantile_cont(wait_ms, 0.95) {answered} AS p95_answer_ms, MAX(wait_ms) {answered} AS max_answer_ms,
               COALESCE(SUM(wait_ms), 0)::BIGINT AS waiting_ms
        FROM ({scope.questions()}) GROUP BY kind ORDER BY kind
        """
    )
