"""The filters of the statistics page: one row of buttons, each opening its choice. The URL holds what is chosen."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, get_args

import streamlit as st

from chat_core.analytics.analytics import Choices
from chat_core.analytics.filters import RANGES, Filters, Outcome, read_filters
from chat_core.i18n import Texts
from chat_core.ui.markdown import plain
from chat_core.ui.viewer import Viewer

_KEPT = ("view", "at", "behind")
"""URL parameters of the page that are no filters."""


def filters_of_address(viewer: Viewer) -> Filters:
    """Read the filters from the URL; what cannot be right is ignored."""
    query = {name: st.query_params.get_all(name) for name in st.query_params}
    return read_filters(query, viewer.zone.key, strict=False)


def choose(filters: Filters) -> None:
    """Write the filters into the URL; the shown sessions belong to other filters and go."""
    kept = {name: st.query_params.get_all(name) for name in _KEPT if name in st.query_params and name == "view"}
    st.query_params.from_dict({**kept, **filters.to_query()})


def draw_filter_row(viewer: Viewer, filters: Filters, choices: Choices, session_title: str | None) -> None:
    """Draw the row; every change is in the URL before the page is drawn again."""
    t = viewer.texts
    outcomes = {name: t.t(f"analytics.outcome.{name}") for name in get_args(Outcome)}
    none = {"": t.t("analytics.none")}
    with st.container(key="filters", horizontal=True, gap="small"):
        _draw_range(viewer, filters)
        _draw_many(t, filters, "tools", choices.tools, {}, _with_tools)
        _draw_many(t, filters, "models", choices.models, none, _with_models)
        _draw_many(t, filters, "skills", choices.skills, none, _with_skills)
        if len(choices.runtimes) > 1 or filters.runtimes:
            _draw_many(t, filters, "runtimes", choices.runtimes, none, _with_runtimes)
        _draw_many(t, filters, "outcomes", list(outcomes), outcomes, _with_outcomes)
        _draw_branches(t, filters)
        if filters.session:
            label = session_title or t.t("analytics.filter.session.unknown")
            st.button(
                plain(t.t("analytics.filter.session.chosen", title=label[:40])),
                key="filter-session",
                icon=":material/close:",
                help=t.t("analytics.filter.session.clear"),
                on_click=lambda: choose(replace(filters, session="")),
            )
        if filters.to_query():
            st.button(
                t.t("analytics.filter.clear"),
                key="filter-clear",
                type="tertiary",
                on_click=lambda: choose(Filters(zone=filters.zone)),
            )


def _draw_range(viewer: Viewer, filters: Filters) -> None:
    t = viewer.texts
    names = {name: t.t(f"analytics.range.{name}") for name in RANGES}
    label = names[filters.range]
    if filters.range == "custom":
        label = f"{filters.first_day} – {filters.last_day}"
    with st.popover(label, icon=":material/calendar_today:", key="filter-range"):
        st.session_state["range"] = filters.range
        st.radio(
            t.t("analytics.filter.range"),
            list(names),
            format_func=names.__getitem__,
            key="range",
            on_change=_change,
            args=(filters, "range", _with_range),
        )
        if filters.range == "custom":
            today = filters.zone.day_of(viewer.now)
            st.session_state["days"] = (filters.first_day or today, filters.last_day or today)
            st.date_input(
                t.t("analytics.filter.days"), key="days", on_change=_change, args=(filters, "days", _with_days)
            )
        st.caption(plain(t.t("analytics.filter.zone", zone=filters.zone.name)))


def _draw_many(
    t: Texts,
    filters: Filters,
    name: str,
    options: Sequence[str],
    words: Mapping[str, str],
    change: Callable[[Filters, Any], Filters],
) -> None:
    chosen: tuple[str, ...] = getattr(filters, name)
    if not chosen:
        label = t.t(f"analytics.filter.{name}.all")
    elif len(chosen) == 1:
        label = words.get(chosen[0], chosen[0])
    else:
        label = t.t(f"analytics.filter.{name}.some", count=len(chosen))
    with st.popover(plain(label[:40]), key=f"filter-{name}"):
        st.session_state[name] = list(chosen)
        st.multiselect(
            t.t(f"analytics.filter.{name}"),
            [*options, *(value for value in chosen if value not in options)],
            format_func=lambda value: words.get(value, value),
            key=name,
            placeholder=t.t(f"analytics.filter.{name}.all"),
            on_change=_change,
            args=(filters, name, change),
        )


def _draw_branches(t: Texts, filters: Filters) -> None:
    with st.popover(t.t(f"analytics.branches.{filters.branches}"), key="filter-branches"):
        st.session_state["branches"] = filters.branches
        st.radio(
            t.t("analytics.filter.branches"),
            ["active", "all"],
            format_func=lambda value: t.t(f"analytics.branches.{value}"),
            captions=[t.t("analytics.branches.active.note"), t.t("analytics.branches.all.note")],
            key="branches",
            on_change=_change,
            args=(filters, "branches", _with_branches),
        )


def _change(filters: Filters, key: str, change: Callable[[Filters, Any], Filters]) -> None:
    choose(change(filters, st.session_state[key]))


def _with_range(filters: Filters, value: str) -> Filters:
    if value != "custom":
        return replace(filters, range=value, first_day=None, last_day=None)
    today = date.today()
    return replace(filters, range=value, first_day=filters.first_day or today, last_day=filters.last_day or today)


def _with_days(filters: Filters, value: tuple[date, ...]) -> Filters:
    # The calendar reports the first day alone while the second is still being picked.
    return replace(filters, first_day=value[0], last_day=value[-1]) if value else filters


def _with_tools(filters: Filters, value: list[str]) -> Filters:
    return replace(filters, tools=tuple(value))


def _with_models(filters: Filters, value: list[str]) -> Filters:
    return replace(filters, models=tuple(value))


def _with_skills(filters: Filters, value: list[str]) -> Filters:
    return replace(filters, skills=tuple(value))


def _with_runtimes(filters: Filters, value: list[str]) -> Filters:
    return replace(filters, runtimes=tuple(value))


def _with_outcomes(filters: Filters, value: list[Outcome]) -> Filters:
    return replace(filters, outcomes=tuple(value))


def _with_branches(filters: Filters, value: str) -> Filters:
    return replace(filters, branches="all" if value == "all" else "active")
