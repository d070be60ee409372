"""Chart tables for people: columns with names and units, times in the viewer's zone, files to download."""

from collections.abc import Mapping, Sequence
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import streamlit as st

from chat_core.i18n import Texts

HIDDEN = frozenset({"session_uuid", "message_uuid", "log_id", "bucket_start", "bucket_end", "total_rows"})
"""Columns for links and programs."""
_SHARES = frozenset({"error_rate", "next_ok", "run_ok", "success", "share", "probability"})
_MINUTES = frozenset({"tool_ms", "lost_ms", "waiting_ms", "burnt_ms", "total_ms"})
_MEASURED = frozenset({"value", "usual", "band_low", "band_high"})
_KILOBYTES = frozenset({"result_bytes", "result_bytes_p50"})


def shown_table(table: pa.Table, texts: Texts, words: Mapping[str, Mapping[str, str]]) -> pa.Table:
    """Return the table as it is shown: durations in s or min, sizes in kB, codes as words, no keys.

    `words` translates the values of a column, by column name.
    """
    columns: dict[str, pa.ChunkedArray] = {}
    measures = table.column("measure").to_pylist() if "measure" in table.column_names else []
    for name in table.column_names:
        column = table.column(name)
        if name in HIDDEN or name == "total_sessions":
            continue
        if measures and name in _MEASURED:
            pairs = zip(measures, column.to_pylist(), strict=True)
            column = pa.chunked_array([pa.array([_measured(measure, value) for measure, value in pairs])])
        elif name in words:
            column = pa.chunked_array(
                [pa.array([words[name].get(str(value), str(value)) for value in column.to_pylist()])]
            )
        elif name.removesuffix("_low").removesuffix("_high") in _MINUTES:
            column = pc.round(pc.divide(column.cast(pa.float64()), 60_000), 2)
        elif "_ms" in name:
            column = pc.round(pc.divide(column.cast(pa.float64()), 1000), 3)
        elif name in _KILOBYTES:
            column = pc.round(pc.divide(column.cast(pa.float64()), 1000), 1)
        elif pa.types.is_timestamp(column.type) and name != "bucket":
            column = column.cast(pa.timestamp("us", "UTC"))
        columns[name] = column
    return pa.table(columns)


def _measured(measure: str, value: float) -> str:
    if measure == "error_rate":
        return f"{value:.0%}"
    return f"{value:.0f} ms" if value < 1000 else f"{value / 1000:.1f} s"


def column_config(table: pa.Table, texts: Texts, zone: ZoneInfo) -> dict[str, Any]:
    """Return names, units and number formats for `st.dataframe`."""
    config: dict[str, Any] = {}
    for name, kind in zip(table.schema.names, table.schema.types, strict=True):
        base = name if name.startswith("band_") else name.removesuffix("_low").removesuffix("_high")
        label = texts.t(f"analytics.column.{base}")
        if base != name:
            label = texts.t(f"analytics.column.{name.removeprefix(base + '_')}_of", name=label)
        if base in _SHARES:
            config[name] = st.column_config.NumberColumn(label, format="percent")
        elif base in _MINUTES:
            config[name] = st.column_config.NumberColumn(f"{label} ({texts.t('analytics.unit.min')})", format="%.1f")
        elif "_ms" in name:
            config[name] = st.column_config.NumberColumn(f"{label} (s)", format="%.2f")
        elif base in _KILOBYTES:
            config[name] = st.column_config.NumberColumn(f"{label} (kB)", format="%.1f")
        elif base in {"calls_per_run", "lift", "value", "usual"} or name in {"band_low", "band_high"}:
            config[name] = st.column_config.NumberColumn(label, format="%.2f") if _is_number(kind) else label
        elif name in {"bucket", "day"}:
            config[name] = (
                st.column_config.DateColumn(label) if name == "day" else st.column_config.DatetimeColumn(label)
            )
        elif pa.types.is_timestamp(kind):
            config[name] = st.column_config.DatetimeColumn(
                f"{label} ({zone.key})", format="YYYY-MM-DD HH:mm:ss", timezone=zone.key
            )
        elif _is_number(kind):
            config[name] = st.column_config.NumberColumn(label, format="localized")
        else:
            config[name] = label
    return config


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def links_to_sessions(table: pa.Table, base: str) -> list[str]:
    """Return for each row the address that opens its message in the chat."""
    sessions, messages = table.column("session_uuid").to_pylist(), table.column("message_uuid").to_pylist()
    return [
        f"{base}/?session={session}&message={message}" if session and message else ""
        for session, message in zip(sessions, messages, strict=True)
    ]


def rows_of(table: pa.Table) -> Sequence[dict[str, Any]]:
    return table.to_pylist()  # type: ignore[no-any-return]
