"""What happens after an error, and does it help?"""

import pyarrow as pa

from chat_core.analytics.intervals import share_sql
from chat_core.analytics.scope import Scope

CATEGORY = """CASE WHEN next_tool = '' THEN CASE WHEN run_status = 'RUNNING' THEN 'undecided' ELSE 'gave_up' END
                   WHEN next_same_arguments THEN 'same_call' WHEN next_tool = tool THEN 'same_tool'
                   ELSE 'other_tool' END"""


def read(scope: Scope) -> pa.Table:
    """One row for each reaction to a failed call.

    `next_ok` is the share of the next calls that succeeded (among those that finished), `run_ok` that of the runs
    that ended with success. A failed call that is the last one of a run still at work is undecided and left out.
    """
    finished = "COUNT(*) FILTER (next_outcome IN ('ok', 'error'))"
    ended = "COUNT(*) FILTER (run_status <> 'RUNNING')"
    return scope.table(
        f"""
        WITH failed AS (SELECT *, {CATEGORY} AS reaction FROM ({scope.calls()}) WHERE outcome = 'error')
        SELECT reaction, COUNT(*) AS errors, COUNT(DISTINCT session_id) AS sessions,
               COUNT(*)::DOUBLE / SUM(COUNT(*)) OVER () AS share,
               {finished} AS next_finished,
               {share_sql("COUNT(*) FILTER (next_outcome = 'ok')", finished, "next_ok")},
               {share_sql("COUNT(*) FILTER (run_status = 'SUCCESS')", ended, "run_ok")}
        FROM failed WHERE reaction <> 'undecided' GROUP BY reaction
        ORDER BY list_position(['same_call', 'same_tool', 'other_tool', 'gave_up'], reaction)
        """
    )
