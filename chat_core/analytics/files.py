"""Tables as files: CSV that spreadsheets read right, and Parquet."""

import csv
import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def as_csv_rows(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    """As `as_csv`, for rows that are no table."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    writer.writerows([[_cell(value) for value in row] for row in rows])
    return out.getvalue().encode("utf-8-sig")


def as_csv(table: pa.Table) -> bytes:
    """Return the table as CSV (UTF-8 with a mark, so that spreadsheets read it right).

    Text that a spreadsheet would run as a formula gets an apostrophe before it: tools and models wrote it.
    """
    return as_csv_rows(table.column_names, list(zip(*(column.to_pylist() for column in table.columns), strict=True)))


def as_parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(table, out, compression="zstd")
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return "'" + value
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return value
