"""The drawings of the statistics page, as Vega-Lite and ECharts descriptions made from chart tables.

Pure functions: rows and words in, a description out. Colours differ in hue and in lightness, so that a chart can
be read in grey and by people who see few hues; every mark says its numbers when pointed at.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from chat_core.i18n import Texts

Row = Mapping[str, Any]
Spec = dict[str, Any]

# Every row has its name, at its height.
_ROW_LABELS: Spec = {"labelBound": False, "labelOverlap": False, "labelBaseline": "middle"}
_LEGEND: Spec = {
    "title": None,
    "orient": "top",
    "labelLimit": 140,
    "symbolType": "square",
    "symbolStrokeWidth": 0,
}
_MARKS = "marks"
MAX_ROWS = 12
"""Rows in a drawing; the table has them all."""
PICK = "pick"
"""The name of a chart's selection: what was clicked."""


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of one theme; `series[-1]` is for everything else."""

    series: tuple[str, ...]
    low: str
    high: str
    cell: str
    """The high end where numbers stand on the colour: `text` can be read on all of it."""
    text: str
    muted: str
    error: str
    background: str


LIGHT = Palette(
    series=("#1d3f94", "#c9741a", "#11614a", "#a86cc9", "#7a1f2b", "#2a89ac", "#6b5a12", "#858a93"),
    low="#e9edf8",
    high="#1d3f94",
    cell="#8fa5e6",
    text="#1c1f24",
    muted="#5c636e",
    error="#b3261e",
    background="#ffffff",
)
DARK = Palette(
    series=("#6f8df0", "#ffc078", "#3f9d78", "#e3b8f5", "#d85a6a", "#9be0f5", "#a89034", "#b9bec8"),
    low="#23283a",
    high="#a5baff",
    cell="#4560b8",
    text="#e8e8e6",
    muted="#a0a6b1",
    error="#ff9a92",
    background="#17181b",
)


def palette_of(theme: str | None) -> Palette:
    return DARK if theme == "dark" else LIGHT


@dataclass(frozen=True, slots=True)
class Series:
    """Which tools have a colour of their own, in drawing order, and which one."""

    tools: tuple[str, ...]
    colours: tuple[str, ...]
    other: str
    """The word for all further tools; empty when there are none."""

    def name_of(self, tool: str) -> str:
        return tool if tool in self.tools else self.other

    @property
    def domain(self) -> list[str]:
        return [*self.tools, *([self.other] if self.other else [])]

    @property
    def range(self) -> list[str]:
        return [*self.colours, *([self._grey] if self.other else [])]

    @property
    def _grey(self) -> str:
        return LIGHT.series[-1] if self.colours and self.colours[0] in LIGHT.series else DARK.series[-1]


def series_of(ranked: Sequence[str], shown: Sequence[str], palette: Palette, other_word: str) -> Series:
    """Give each shown tool its colour.

    `ranked` are all tools of the owner, the most used first: the first of them always keep their colour, whatever is
    filtered. Further shown tools take colours that are free. Eight series at most, the last one for the rest.
    """
    own = len(palette.series) if len(set(shown)) <= len(palette.series) else len(palette.series) - 1
    places = {tool: place for place, tool in enumerate(ranked[:own])}
    wanted = sorted(set(shown), key=lambda tool: list(ranked).index(tool) if tool in ranked else len(ranked))
    chosen = wanted[:own]
    taken = {places[tool] for tool in chosen if tool in places}
    free = [place for place in range(own) if place not in taken]
    colours = [palette.series[places[tool] if tool in places else free.pop(0)] for tool in chosen]
    return Series(tuple(chosen), tuple(colours), other_word if len(wanted) > own else "")


def trend(rows: Sequence[Row], series: Series, bucket: str, texts: Texts, palette: Palette) -> Spec:
    """Stacked bars of calls; a bucket that is not over is pale and has a dashed edge."""
    values = [
        {
            "bucket": _wall(row["bucket"]),
            "label": _bucket_label(row["bucket"], bucket),
            "end": _wall(row["bucket"] + _length(bucket)),
            "tool": series.name_of(row["tool"]),
            "order": series.domain.index(series.name_of(row["tool"])),
            "calls": row["calls"],
            "errors": row["errors"],
            "state": texts.t("analytics.complete" if row["complete"] else "analytics.incomplete"),
            "complete": bool(row["complete"]),
            "since": row["bucket_start"].isoformat(),
            "until": row["bucket_end"].isoformat(),
        }
        for row in rows
    ]
    bars = sorted(
        _summed(values, ("since", "tool"), ("calls", "errors")), key=lambda one: (one["since"], -one["order"])
    )
    heights: dict[str, int] = {}
    for bar in bars:
        bar["bottom"] = heights.get(bar["since"], 0)
        bar["top"] = heights[bar["since"]] = bar["bottom"] + bar["calls"]
    return {
        "data": {"values": bars},
        "height": 280,
        "params": [_pick(["bucket", "since", "until"])],
        "mark": {"type": "rect", "stroke": palette.background, "strokeWidth": 1},
        "encoding": {
            "x": {**_time(bucket), "field": "bucket"},
            "x2": {"field": "end"},
            "y": {"field": "top", "type": "quantitative", "axis": _axis(texts, "calls", grid=True)},
            "y2": {"field": "bottom"},
            "color": _colour(series),
            "opacity": {"condition": {"test": "datum.complete", "value": 1}, "value": 0.45},
            "stroke": {"condition": {"test": "datum.complete", "value": palette.background}, "value": palette.text},
            "strokeDash": {"condition": {"test": "datum.complete", "value": [1, 0]}, "value": [3, 3]},
            "tooltip": [
                {"field": "label", "title": texts.t("analytics.column.bucket")},
                _tip("tool", texts),
                _tip("calls", texts, ","),
                _tip("errors", texts, ","),
                {"field": "state", "title": texts.t("analytics.column.complete")},
            ],
        },
    }


def error_trend(rows: Sequence[Row], bucket: str, texts: Texts, palette: Palette) -> Spec:
    """The error rate of all shown tools together, one point a bucket; the one not over is hollow."""
    values = [
        {
            "bucket": _wall(row["bucket"]),
            "label": _bucket_label(row["bucket"], bucket),
            "errors": row["errors"],
            "finished": row["finished"],
            "complete": bool(row["complete"]),
            "since": row["bucket_start"].isoformat(),
            "until": row["bucket_end"].isoformat(),
        }
        for row in rows
    ]
    summed = _summed(values, ("since",), ("errors", "finished"))
    for value in summed:
        value["rate"] = value["errors"] / value["finished"] if value["finished"] else None
    x = {**_time(bucket), "field": "bucket"}
    y = {"field": "rate", "type": "quantitative", "axis": _axis(texts, "error_rate", "%", grid=True)}
    return {
        "data": {"values": summed},
        "height": 160,
        "params": [_pick_marks(["bucket", "since", "until"])],
        "layer": [
            {
                "mark": {"type": "line", "color": palette.error, "strokeWidth": 2},
                "encoding": {"x": x, "y": y},
                "transform": [{"filter": "datum.complete"}],
            },
            {
                "name": _MARKS,
                "mark": {"type": "point", "color": palette.error, "size": 45, "strokeWidth": 2},
                "encoding": {
                    "x": x,
                    "y": y,
                    "fill": {"condition": {"test": "datum.complete", "value": palette.error}, "value": "transparent"},
                    "tooltip": [
                        {"field": "label", "title": texts.t("analytics.column.bucket")},
                        {"field": "rate", "format": ".1%", "title": texts.t("analytics.column.error_rate")},
                        _tip("errors", texts, ","),
                        _tip("finished", texts, ","),
                    ],
                },
            },
        ],
    }


def intervals(
    rows: Sequence[Row],
    label: str,
    name: str,
    texts: Texts,
    palette: Palette,
    *,
    unit: str = "%",
    scale: float = 1.0,
    pick: str | None = None,
) -> Spec:
    """One dot with its 95 % interval for each row: how sure a share, a mean or a median is."""
    picked = pick or label
    values = [
        {
            "label": row[label],
            "estimate": row[name] * scale,
            "low": (row[f"{name}_low"] if row[f"{name}_low"] is not None else row[name]) * scale,
            "high": (row[f"{name}_high"] if row[f"{name}_high"] is not None else row[name]) * scale,
            picked: row[picked],
        }
        for row in rows
        if row[name] is not None
    ]
    number = ".1%" if unit == "%" else ",.2f"
    y = {
        "field": "label",
        "type": "nominal",
        "sort": [row[label] for row in rows],
        "axis": {"title": None, "labelLimit": 160, "ticks": False, "domain": False, **_ROW_LABELS},
    }
    x_axis = _axis(texts, name, "%" if unit == "%" else "~s", grid=True)
    tooltip = [
        {"field": "label", "title": ""},
        {"field": "estimate", "format": number, "title": texts.t(f"analytics.column.{name}")},
        {"field": "low", "format": number, "title": texts.t("analytics.column.low")},
        {"field": "high", "format": number, "title": texts.t("analytics.column.high")},
    ]
    return {
        "data": {"values": values},
        "height": _height(len(values), 26),
        "encoding": {"y": y, "tooltip": tooltip},
        "params": [_pick_marks([picked])],
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 2, "color": palette.muted},
                "encoding": {
                    "x": {"field": "low", "type": "quantitative", "axis": x_axis, "scale": {"zero": True}},
                    "x2": {"field": "high"},
                },
            },
            {
                "name": _MARKS,
                "mark": {"type": "point", "filled": True, "size": 75, "opacity": 1, "color": palette.series[0]},
                "encoding": {"x": {"field": "estimate", "type": "quantitative"}},
            },
        ],
    }


def latency(rows: Sequence[Row], series: Series, texts: Texts, palette: Palette) -> Spec:
    """For each tool the middle half of its calls as a bar, 5 % to 95 % as a line, the median as a gap."""
    names = {"p5": "p5_ms", "p25": "p25_ms", "p50": "p50_ms", "p75": "p75_ms", "p95": "p95_ms", "p99": "p99_ms"}
    values = [
        {
            "tool": row["tool"],
            "series": series.name_of(row["tool"]),
            "finished": row["finished"],
            **{short: max(row[column], 1) / 1000 for short, column in names.items()},
        }
        for row in rows
    ]
    tooltip = [
        _tip("tool", texts),
        _tip("finished", texts, ","),
        *({"field": short, "format": ",.3~f", "title": f"{short} (s)"} for short in names),
    ]
    y = {
        "field": "tool",
        "type": "nominal",
        "sort": [row["tool"] for row in rows],
        "axis": {"title": None, "labelLimit": 160, "ticks": False, "domain": False, **_ROW_LABELS},
    }
    scale = {"type": "log", "nice": True}
    axis = {**_axis(texts, "duration", "~g", grid=True), **_DECADES}
    low = {"field": "p5", "type": "quantitative", "scale": scale, "axis": axis}
    return {
        "data": {"values": values},
        "height": _height(len(values), 30),
        "encoding": {"y": y, "tooltip": tooltip},
        "params": [_pick_marks(["tool"])],
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 1.5, "color": palette.muted},
                "encoding": {"x": low, "x2": {"field": "p95"}},
            },
            {
                "name": _MARKS,
                "mark": {"type": "bar", "height": 14},
                "encoding": {
                    "x": {**low, "field": "p25"},
                    "x2": {"field": "p75"},
                    "color": _colour(series, field="series", legend=False),
                },
            },
            {
                "mark": {"type": "tick", "thickness": 3, "size": 20, "color": palette.text},
                "encoding": {"x": {**low, "field": "p50"}},
            },
            {
                "mark": {"type": "point", "shape": "triangle-right", "filled": True, "size": 40, "color": palette.text},
                "encoding": {"x": {**low, "field": "p99"}},
            },
        ],
    }


# Axis labels in the unit a person would say.
_DECADES: Spec = {
    "values": [0.001, 0.01, 0.1, 1, 10, 60, 600, 3600],
    "labelOverlap": "greedy",
    "labelExpr": "datum.value < 1 ? format(datum.value * 1000, '~g') + ' ms' : datum.value < 60 ?"
    " format(datum.value, '~g') + ' s' : datum.value < 3600 ? format(datum.value / 60, '~g') + ' min' : '1 h'",
}


def distribution(rows: Sequence[Row], order: Sequence[str], texts: Texts, palette: Palette) -> Spec:
    """For each tool a strip of bins on a log scale, darker where more of its calls are."""
    most = {tool: max(row["calls"] for row in rows if row["tool"] == tool) for tool in {row["tool"] for row in rows}}
    values = [
        {
            "tool": row["tool"],
            "from": max(row["from_ms"], 0.7) / 1000,
            "to": row["to_ms"] / 1000,
            "calls": row["calls"],
            "part": row["calls"] / most[row["tool"]],
        }
        for row in rows
    ]
    axis = {**_axis(texts, "duration", "~g"), **_DECADES}
    return {
        "data": {"values": values},
        "height": _height(len(order), 26),
        "params": [_pick(["tool"])],
        "mark": {"type": "bar", "height": 18},
        "encoding": {
            "x": {"field": "from", "type": "quantitative", "scale": {"type": "log"}, "axis": axis},
            "x2": {"field": "to"},
            "y": {
                "field": "tool",
                "type": "nominal",
                "sort": list(order),
                "axis": {"title": None, "labelLimit": 160, "ticks": False, "domain": False, **_ROW_LABELS},
            },
            "color": {
                "field": "part",
                "type": "quantitative",
                "scale": {"range": [palette.low, palette.high], "domain": [0, 1]},
                "legend": None,
            },
            "tooltip": [
                _tip("tool", texts),
                {"field": "from", "format": ",.3~f", "title": texts.t("analytics.column.from_s")},
                {"field": "to", "format": ",.3~f", "title": texts.t("analytics.column.to_s")},
                _tip("calls", texts, ","),
            ],
        },
    }


def heatmap(rows: Sequence[Row], texts: Texts, palette: Palette) -> Spec:
    """A week of hours: darker means more calls; the number stands in the cell when pointed at."""
    known = {(row["weekday"], row["hour"]): row for row in rows}
    days = [texts.t(f"time.weekday.{day}") for day in range(1, 8)]
    values = []
    for day in range(1, 8):
        for hour in range(24):
            row = known.get((day, hour), {})
            values.append(
                {
                    "day": days[day - 1],
                    "weekday": day,
                    "hour": hour,
                    "calls": row.get("calls", 0),
                    "errors": row.get("errors", 0),
                    "rate": row.get("error_rate"),
                }
            )
    return {
        "data": {"values": values},
        "height": 7 * 24 + 40,
        "params": [_pick(["weekday", "hour"])],
        "mark": {"type": "rect", "stroke": palette.background, "strokeWidth": 2, "cornerRadius": 3},
        "encoding": {
            "x": {
                "field": "hour",
                "type": "ordinal",
                "axis": {
                    "title": texts.t("analytics.column.hour"),
                    "labelAngle": 0,
                    "ticks": False,
                    "domain": False,
                    "labelExpr": "datum.value % 3 == 0 ? datum.label : ''",
                },
            },
            "y": {
                "field": "day",
                "type": "ordinal",
                "sort": days,
                "axis": {"title": None, "ticks": False, "domain": False, **_ROW_LABELS},
            },
            "color": {
                "field": "calls",
                "type": "quantitative",
                "scale": {"range": [palette.low, palette.high]},
                "legend": {"title": texts.t("analytics.column.calls"), "orient": "right", "gradientLength": 120},
            },
            "tooltip": [
                {"field": "day", "title": texts.t("analytics.column.weekday")},
                _tip("hour", texts),
                _tip("calls", texts, ","),
                _tip("errors", texts, ","),
                {"field": "rate", "format": ".1%", "title": texts.t("analytics.column.error_rate")},
            ],
        },
    }


def followers(rows: Sequence[Row], series: Series, texts: Texts, palette: Palette) -> Spec:
    """A matrix: of the calls of the tool at the left, the share that has the tool above next."""
    kept = [row for row in rows if row["tool"] in series.tools and row["next_tool"] in series.tools]
    values = [
        {
            "tool": row["tool"],
            "next_tool": row["next_tool"],
            "probability": row["probability"],
            "lift": row["lift"],
            "times": row["times"],
        }
        for row in kept
    ]
    y = {
        "field": "tool",
        "type": "nominal",
        "sort": list(series.tools),
        "axis": {
            "title": texts.t("analytics.column.tool"),
            "labelLimit": 140,
            "ticks": False,
            "domain": False,
            **_ROW_LABELS,
        },
    }
    x = {
        "field": "next_tool",
        "type": "nominal",
        "sort": list(series.tools),
        "axis": {
            "title": texts.t("analytics.column.next_tool"),
            "orient": "top",
            "labelAngle": -30,
            "labelLimit": 100,
            "ticks": False,
            "domain": False,
            **_ROW_LABELS,
        },
    }
    return {
        "data": {"values": values},
        "height": _height(len({row["tool"] for row in kept}), 32, 110),
        "encoding": {
            "x": x,
            "y": y,
            "tooltip": [
                _tip("tool", texts),
                _tip("next_tool", texts),
                {"field": "probability", "format": ".0%", "title": texts.t("analytics.column.probability")},
                {"field": "lift", "format": ".2f", "title": texts.t("analytics.column.lift")},
                _tip("times", texts, ","),
            ],
        },
        "params": [_pick_marks(["tool", "next_tool"])],
        "layer": [
            {
                "name": _MARKS,
                "mark": {"type": "rect", "stroke": palette.background, "strokeWidth": 2, "cornerRadius": 3},
                "encoding": {
                    "color": {
                        "field": "probability",
                        "type": "quantitative",
                        "scale": {"range": [palette.low, palette.cell], "domain": [0, 1]},
                        "legend": None,
                    }
                },
            },
            {
                "mark": {"type": "text", "fontSize": 12},
                "encoding": {
                    "text": {"field": "probability", "type": "quantitative", "format": ".0%"},
                    "color": {"value": palette.text},
                },
            },
        ],
    }


def steps(rows: Sequence[Row], series: Series, texts: Texts, palette: Palette) -> Spec:
    """The first five steps of the runs as an ECharts Sankey: from tool to tool, to how the run ended."""
    nodes: dict[str, Spec] = {}
    links: dict[tuple[str, str], int] = {}
    colours = dict(zip(series.domain, series.range, strict=True))

    def node(depth: int, name: str, colour: str) -> str:
        key = f"{depth}. {name}"
        nodes.setdefault(key, {"name": key, "depth": depth - 1, "itemStyle": {"color": colour, "borderWidth": 0}})
        return key

    last = max((int(row["step"]) for row in rows), default=1) + 1
    for row in rows:
        step = int(row["step"])
        source_name = series.name_of(row["source"])
        source = node(step, source_name, colours[source_name])
        if row["target_kind"] == "tool":
            target_name = series.name_of(row["target"])
            target = node(step + 1, target_name, colours[target_name])
        else:
            word = texts.t(f"analytics.run.{row['target']}")
            colour = palette.error if row["target"] == "FAILED" else palette.muted
            nodes.setdefault(word, {"name": word, "depth": last - 1, "itemStyle": {"color": colour, "borderWidth": 0}})
            target = word
        links[(source, target)] = links.get((source, target), 0) + int(row["runs"])
    return {
        "tooltip": {"trigger": "item", "valueFormatter": "localized"},
        "series": [
            {
                "type": "sankey",
                "data": list(nodes.values()),
                "links": [{"source": a, "target": b, "value": n} for (a, b), n in links.items()],
                "nodeAlign": "left",
                "nodeGap": 10,
                "nodeWidth": 12,
                "left": 4,
                "right": 96,
                "top": 8,
                "bottom": 8,
                "emphasis": {"focus": "adjacency"},
                "lineStyle": {"color": "source", "opacity": 0.28, "curveness": 0.5},
                "label": {"color": palette.text, "fontSize": 12},
            }
        ],
    }


def bars(
    rows: Sequence[Row],
    label: str,
    parts: Sequence[tuple[str, str]],
    axis_title: str,
    palette: Palette,
    pick: Sequence[str],
) -> Spec:
    """Horizontal stacked bars: for each row the columns of `parts`, each with its word."""
    colours = (palette.series[0], palette.series[1], palette.series[7])
    values = [
        {
            "label": row[label],
            "part": word,
            "order": place,
            "value": row[column] or 0,
            **{name: row[name] for name in pick if name in row},
        }
        for row in rows
        for place, (column, word) in enumerate(parts)
    ]
    return {
        "data": {"values": values},
        "height": _height(len(rows), 30, 62 if len(parts) < 2 else 140),
        "params": [_pick(list(pick) or ["label"])],
        "mark": {"type": "bar", "stroke": palette.background, "strokeWidth": 1},
        "encoding": {
            "y": {
                "field": "label",
                "type": "nominal",
                "sort": [row[label] for row in rows],
                "axis": {"title": None, "labelLimit": 200, "ticks": False, "domain": False, **_ROW_LABELS},
            },
            "x": {
                "field": "value",
                "type": "quantitative",
                "stack": "zero",
                "axis": {"title": axis_title, "grid": True, "tickCount": 5, "format": ",~f"},
            },
            "color": {
                "field": "part",
                "type": "nominal",
                "scale": {"domain": [word for _, word in parts], "range": list(colours[: len(parts)])},
                "legend": {"title": None, "orient": "top"} if len(parts) > 1 else None,
            },
            "order": {"field": "order"},
            "tooltip": [
                {"field": "label", "title": ""},
                {"field": "part", "title": ""},
                {"field": "value", "format": ",.1~f", "title": axis_title},
            ],
        },
    }


def _height(rows: int, step: int, frame: int = 62) -> int:
    """Pixels for rows of equal height, with room for the axis."""
    return max(rows, 1) * step + frame


def _pick(fields: list[str]) -> Spec:
    return {"name": PICK, "select": {"type": "point", "fields": fields, "clear": "dblclick"}}


def _pick_marks(fields: list[str]) -> Spec:
    """As `_pick`, in a drawing of several layers: the marks of the one that is named."""
    return {**_pick(fields), "views": [_MARKS]}


def _colour(series: Series, field: str = "tool", *, legend: bool = True) -> Spec:
    return {
        "field": field,
        "type": "nominal",
        "scale": {"domain": series.domain, "range": series.range},
        "legend": _LEGEND if legend else None,
    }


def _axis(texts: Texts, name: str, number: str = ",~s", *, grid: bool = False) -> Spec:
    return {"title": texts.t(f"analytics.column.{name}"), "format": number, "grid": grid, "tickCount": 5}


def _tip(field: str, texts: Texts, number: str | None = None) -> Spec:
    tip: Spec = {"field": field, "title": texts.t(f"analytics.column.{field}")}
    return {**tip, "format": number} if number else tip


def _time(bucket: str) -> Spec:
    # Times are wall clock times of the viewer's zone already; the scale must not shift them again.
    formats = {"hour": "%d %b %H:%M", "day": "%d %b", "week": "%d %b %Y"}
    axis = {"title": None, "format": formats[bucket], "labelOverlap": True, "grid": False}
    return {"type": "temporal", "scale": {"type": "utc"}, "axis": axis}


def _bucket_label(moment: datetime, bucket: str) -> str:
    return f"{moment:%Y-%m-%d %H:%M}" if bucket == "hour" else f"{moment:%Y-%m-%d}"


def _wall(moment: datetime) -> str:
    return moment.isoformat() + "Z"


def _length(bucket: str) -> timedelta:
    return {"hour": timedelta(hours=1), "day": timedelta(days=1)}.get(bucket, timedelta(days=7))


def _summed(values: Sequence[Spec], keys: Sequence[str], sums: Sequence[str]) -> list[Spec]:
    """Rows with equal keys become one, with their numbers added."""
    found: dict[tuple[Any, ...], Spec] = {}
    for value in values:
        key = tuple(value[name] for name in keys)
        if key in found:
            for name in sums:
                found[key][name] += value[name]
        else:
            found[key] = dict(value)
    return list(found.values())
