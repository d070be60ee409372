"""Which tool follows which, and how do runs go on from step to step?"""

import pyarrow as pa

from chat_core.analytics.scope import Scope

SANKEY_STEPS = 5
LINK = f"""step || ':' || tool || '>' || CASE WHEN next_tool = '' THEN run_status
           WHEN step = {SANKEY_STEPS} THEN 'more' ELSE next_tool END"""


def read(scope: Scope) -> pa.Table:
    """One row for each pair (tool, the call after it in the same run).

    `probability` is the share of the tool's calls that have this one next, among those that have a next one.
    `lift` is that share over the follower's share after any tool: above 1 means "more than by chance".
    """
    return scope.table(
        f"""
        WITH pairs AS (SELECT tool, next_tool, session_id FROM ({scope.calls()}) WHERE next_tool <> ''),
        counted AS (
            SELECT tool, next_tool, COUNT(*) AS times, COUNT(DISTINCT session_id) AS sessions
            FROM pairs GROUP BY tool, next_tool
        )
        SELECT tool, next_tool, times, sessions,
               times::DOUBLE / SUM(times) OVER (PARTITION BY tool) AS probability,
               (times::DOUBLE / SUM(times) OVER (PARTITION BY tool))
                   / (SUM(times) OVER (PARTITION BY next_tool)::DOUBLE / SUM(times) OVER ()) AS lift
        FROM counted ORDER BY times DESC, tool, next_tool
        """
    )


def read_steps(scope: Scope) -> pa.Table:
    """One row for each link of the first five steps: from a step's tool to the next step's, or to the run's end.

    `target` is a tool or, for `target_kind` outcome, the status of the run. A run that goes on after the fifth step
    links to `more`.
    """
    return scope.table(
        f"""
        WITH runs AS ({scope.runs()}),
        steps AS (
            SELECT c.step, c.tool, c.next_tool, r.status
            FROM "call" c JOIN runs r ON r.run_id = c.run_id AND r.message_id = c.message_id
            WHERE c.owner = $owner AND c.step <= {SANKEY_STEPS}
        )
        SELECT step, tool AS source,
               CASE WHEN next_tool = '' THEN status WHEN step = {SANKEY_STEPS} THEN 'more' ELSE next_tool END AS target,
               CASE WHEN next_tool = '' THEN 'outcome' WHEN step = {SANKEY_STEPS} THEN 'more' ELSE 'tool' END
                   AS target_kind,
               COUNT(*) AS runs
        FROM steps GROUP BY ALL ORDER BY step, runs DESC, source, target
        """
    )
