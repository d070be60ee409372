"""How do calls and errors develop?"""

from datetime import timedelta

import pyarrow as pa

from chat_core.analytics.filters import Bucket, Filters, Window
from chat_core.analytics.scope import FINISHED, Scope


def bucket_of(filters: Filters, window: Window) -> Bucket:
    """The chosen bucket, or the one that gives a readable number of bars."""
    if filters.bucket != "auto":
        return filters.bucket
    length = window.end - window.start
    if length <= timedelta(days=3):
        return "hour"
    return "day" if length <= timedelta(days=120) else "week"


def read(scope: Scope) -> pa.Table:
    """One row for each bucket and tool. `bucket` is the wall clock time it begins at; weeks begin on Monday.

    Hours are told apart by `bucket_start` (UTC): the hour that comes twice in autumn is two buckets.
    `complete` is false for a bucket that is not over yet, or that the window cuts.
    """
    bucket = bucket_of(scope.filters, scope.window)
    zone, window = scope.filters.zone, scope.window
    offset = zone.offset_sql("started_at", window.start, window.end)
    local = f"date_trunc('{bucket}', started_at + {offset})"
    # Within a day the offset may change; only hours need it to be told apart.
    start = f"{local} - {offset}" if bucket == "hour" else f"{local}"
    table = scope.table(
        f"""
        SELECT {local} AS bucket, {start} AS bucket_key, tool, COUNT(*) AS calls,
               COUNT(*) FILTER ({FINISHED}) AS finished, COUNT(*) FILTER (outcome = 'error') AS errors,
               COUNT(*) FILTER (outcome = 'running') AS running
        FROM ({scope.calls()}) GROUP BY ALL ORDER BY bucket_key, tool
        """
    )
    buckets = [moment.replace(tzinfo=None) for moment in table.column("bucket").to_pylist()]
    keys = table.column("bucket_key").to_pylist()
    starts, ends = [], []
    for wall, key in zip(buckets, keys, strict=True):
        if bucket == "hour":
            begin = key.replace(tzinfo=window.start.tzinfo)
            starts.append(begin)
            ends.append(begin + timedelta(hours=1))
        else:
            starts.append(zone.midnight(wall.date()))
            ends.append(zone.midnight(wall.date() + timedelta(days=7 if bucket == "week" else 1)))
    complete = [
        begin >= window.start and end <= window.end and end <= scope.now
        for begin, end in zip(starts, ends, strict=True)
    ]
    plain = [begin.replace(tzinfo=None) for begin in starts]
    return (
        table.drop_columns(["bucket_key"])
        .append_column("bucket_start", pa.array(plain, pa.timestamp("us")))
        .append_column("bucket_end", pa.array([end.replace(tzinfo=None) for end in ends], pa.timestamp("us")))
        .append_column("complete", pa.array(complete, pa.bool_()))
    )
