"""The charts by name, and what each of their columns means: the pages, the API and the docs read this one list."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from chat_core.analytics.charts import (
    after_error,
    cards,
    change_notice,
    comparison,
    extremes,
    heatmap,
    latency,
    loops,
    people,
    scorecard,
    sequences,
    trend,
)
from chat_core.analytics.footer import Basis
from chat_core.analytics.scope import Scope


@dataclass(frozen=True, slots=True)
class Chart:
    """`basis` is the fact table its numbers count."""

    name: str
    read: Callable[[Scope], pa.Table]
    basis: Basis = "calls"


CHARTS: Mapping[str, Chart] = {
    chart.name: chart
    for chart in (
        Chart("cards", cards.read),
        Chart("scorecard", scorecard.read),
        Chart("trend", trend.read),
        Chart("latency", latency.read),
        Chart("latency_distribution", latency.read_distribution),
        Chart("heatmap", heatmap.read),
        Chart("sequences", sequences.read),
        Chart("steps", sequences.read_steps, "runs"),
        Chart("after_error", after_error.read),
        Chart("loops", loops.read),
        Chart("loops_by_tool", loops.read_by_tool),
        Chart("people", people.read, "questions"),
        Chart("models", comparison.read_models, "runs"),
        Chart("skills", comparison.read_skills, "runs"),
        Chart("runtimes", comparison.read_runtimes, "runs"),
        Chart("slowest", extremes.read_slowest),
        Chart("largest", extremes.read_largest),
        Chart("change_notice", change_notice.read),
    )
}
