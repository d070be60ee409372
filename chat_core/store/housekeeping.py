"""Keeps the file small: condenses the logs of ended runs, removes old records when asked to, gives space back.

Everything goes in small transactions with a pause between them, so that no run waits long for the writer.
"""

import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from chat_core.fail_point import fail_point
from chat_core.models import utc_text
from chat_core.store.database import Database
from chat_core.store.rows import dump

CONDENSE_AFTER = timedelta(hours=1)
JOINED_BYTES = 4 * 1024
ROWS_AT_ONCE = 1_000
PAGES_AT_ONCE = 500
RUNS_AT_ONCE = 1_000
PAUSE_SECONDS = 0.005
REMOVED_CODE = "record_removed"

# The log rows of one run: a continued message holds several runs, one after the other.
_OF_RUN = """
    l.message_id = :message_id AND l.seq >= :first_seq AND l.seq < COALESCE(
        (SELECT min(later.first_seq) FROM run later
         WHERE later.message_id = :message_id AND later.first_seq > :first_seq), 9223372036854775807)
"""
_RECORD = f"{_OF_RUN} AND l.kind NOT IN ('run_started', 'run_finished', 'run_failed', 'run_stopped', 'run_interrupted')"
_RESULTS = f"""
    t.message_id = :message_id AND t.result_ref IN (
        SELECT json_extract(l.meta_json, '$.result_ref') FROM chat_message_log l
        WHERE {_RECORD} AND l.kind = 'tool_result')
"""


@dataclass(frozen=True, slots=True)
class OldRecords:
    """What a retention of so many days removes, or would remove."""

    runs: int = 0
    entries: int = 0
    text_bytes: int = 0
    tool_results: int = 0
    tool_result_bytes: int = 0


class Housekeeping:
    """`closing` is the event that says Parley is stopping: then the work is left where it is, and goes on later."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def condense(self, now: datetime, closing: threading.Event) -> int:
        """Condense the logs of runs that ended more than an hour ago; return how many.

        Answer deltas go, because the text is in the message; neighbouring thinking deltas become rows of up to
        4 KiB that carry `seq` and `seq_to`.
        """
        done = 0
        for run in self._ended("r.compacted_at IS NULL", now - CONDENSE_AFTER):
            place = _place(run, now)
            self._write("UPDATE run SET compacting_at = :now WHERE run_id = :run_id", place)
            fail_point("condense.begun")
            while self._drop_answers(place):
                fail_point("condense.dropped")
                if closing.wait(PAUSE_SECONDS):
                    return done
            after = 0
            while after := self._join_thinking(place, after):
                fail_point("condense.joined")
                if closing.wait(PAUSE_SECONDS):
                    return done
            self._write("UPDATE run SET compacted_at = :now WHERE run_id = :run_id", place)
            done += 1
            if closing.wait(PAUSE_SECONDS):
                return done
        return done

    def old_records(self, now: datetime, days: int) -> OldRecords:
        """Tell what `remove_old_records` would remove, and change nothing."""
        total = OldRecords()
        for run in self._ended("r.pruned_at IS NULL", now - timedelta(days=days), limit=-1):
            place = _place(run, now)
            with self._database.read() as db:
                entries, text_bytes = db.execute(
                    f"""
                    SELECT count(*), COALESCE(sum(length(CAST(l.content AS BLOB)) + length(COALESCE(l.meta_json, ''))),
                                              0)
                    FROM chat_message_log l WHERE {_RECORD}
                    """,
                    place,
                ).fetchone()
                results, result_bytes = db.execute(
                    f"SELECT count(*), COALESCE(sum(length(t.body)), 0) FROM tool_result t WHERE {_RESULTS}", place
                ).fetchone()
            total = OldRecords(
                runs=total.runs + 1,
                entries=total.entries + entries,
                text_bytes=total.text_bytes + text_bytes,
                tool_results=total.tool_results + results,
                tool_result_bytes=total.tool_result_bytes + result_bytes,
            )
        return total

    def remove_old_records(self, now: datetime, days: int, closing: threading.Event) -> int:
        """Remove the records of runs that ended more than `days` days ago; return how many.

        Messages, answers and what the agent remembers stay. In the place of a record stands one entry that says
        why it is gone.
        """
        done = 0
        for run in self._ended("r.pruned_at IS NULL", now - timedelta(days=days)):
            place = _place(run, now)
            self._write("UPDATE run SET compacting_at = COALESCE(compacting_at, :now) WHERE run_id = :run_id", place)
            while self._remove_some(place):
                fail_point("retention.removed")
                if closing.wait(PAUSE_SECONDS):
                    return done
            self._mark_removed(place, now, days)
            done += 1
            if closing.wait(PAUSE_SECONDS):
                return done
        return done

    def give_space_back(self, closing: threading.Event) -> None:
        """Hand pages that deletions have freed back to the disk, a few at a time, and cut the write-ahead log."""
        while self._database.vacuum_some(PAGES_AT_ONCE):
            if closing.wait(PAUSE_SECONDS):
                return
        self._database.cut_wal()

    # -- steps ---------------------------------------------------------------------------------------------------

    def _drop_answers(self, place: dict[str, object]) -> int:
        return self._write(
            f"""
            DELETE FROM chat_message_log WHERE id IN (
                SELECT l.id FROM chat_message_log l WHERE {_OF_RUN} AND l.kind = 'answer' LIMIT {ROWS_AT_ONCE})
            """,
            place,
        )

    def _join_thinking(self, place: dict[str, object], after: int) -> int:
        """Join the next rows after `after`; return the seq that was reached, 0 when these were the last."""
        with self._database.write() as db:
            rows = db.execute(
                f"""
                SELECT l.id, l.seq, COALESCE(l.seq_to, l.seq) AS seq_to, l.content FROM chat_message_log l
                WHERE {_OF_RUN} AND l.seq > :after AND l.kind = 'thinking' ORDER BY l.seq LIMIT {ROWS_AT_ONCE}
                """,
                {**place, "after": after},
            ).fetchall()
            for group in _groups(rows):
                if len(group) > 1:
                    db.executemany("DELETE FROM chat_message_log WHERE id = ?", [(row["id"],) for row in group[1:]])
                    db.execute(
                        "UPDATE chat_message_log SET content = ?, seq_to = ? WHERE id = ?",
                        ("".join(row["content"] for row in group), group[-1]["seq_to"], group[0]["id"]),
                    )
        return int(rows[-1]["seq"]) if len(rows) == ROWS_AT_ONCE else 0

    def _remove_some(self, place: dict[str, object]) -> int:
        with self._database.write() as db:
            rows = db.execute(
                f"""
                SELECT l.id, json_extract(l.meta_json, '$.result_ref') AS result_ref FROM chat_message_log l
                WHERE {_RECORD} LIMIT {ROWS_AT_ONCE}
                """,
                place,
            ).fetchall()
            db.executemany("DELETE FROM chat_message_log WHERE id = ?", [(row["id"],) for row in rows])
            refs = [(row["result_ref"],) for row in rows if row["result_ref"]]
            db.executemany("DELETE FROM tool_result WHERE result_ref = ?", refs)
        return len(rows)

    def _mark_removed(self, place: dict[str, object], now: datetime, days: int) -> None:
        with self._database.write() as db:
            last = db.execute(f"SELECT max(l.seq) FROM chat_message_log l WHERE {_OF_RUN}", place).fetchone()[0]
            first = int(str(place["first_seq"])) + 1
            if last is not None and last > first:
                note = f"The record of this run was removed after {days} days, as the settings say."
                db.execute(
                    """
                    INSERT INTO chat_message_log (message_id, seq, seq_to, kind, content, meta_json, created_at)
                    VALUES (?, ?, ?, 'status', ?, ?, ?)
                    """,
                    (
                        place["message_id"],
                        first,
                        last - 1,
                        note,
                        dump({"code": REMOVED_CODE, "days": days}),
                        utc_text(now),
                    ),
                )
            db.execute(
                "UPDATE run SET pruned_at = :now, compacted_at = COALESCE(compacted_at, :now) WHERE run_id = :run_id",
                place,
            )

    def _ended(self, condition: str, until: datetime, limit: int = RUNS_AT_ONCE) -> list[sqlite3.Row]:
        with self._database.read() as db:
            return db.execute(
                f"""
                SELECT r.run_id, r.message_id, r.first_seq FROM run r
                WHERE r.ended_at IS NOT NULL AND r.ended_at <= ? AND {condition} ORDER BY r.ended_at LIMIT ?
                """,
                (utc_text(until), limit),
            ).fetchall()

    def _write(self, sql: str, values: dict[str, object]) -> int:
        with self._database.write() as db:
            return db.execute(sql, values).rowcount


def _place(run: sqlite3.Row, now: datetime) -> dict[str, object]:
    return {
        "run_id": run["run_id"],
        "message_id": run["message_id"],
        "first_seq": run["first_seq"],
        "now": utc_text(now),
    }


def _groups(rows: Sequence[sqlite3.Row]) -> list[list[sqlite3.Row]]:
    """Neighbours without a gap between them, in groups of at most 4 KiB of text."""
    groups: list[list[sqlite3.Row]] = []
    size = 0
    for row in rows:
        row_bytes = len(row["content"].encode("utf-8"))
        if groups and groups[-1][-1]["seq_to"] + 1 == row["seq"] and size + row_bytes <= JOINED_BYTES:
            groups[-1].append(row)
            size += row_bytes
        else:
            groups.append([row])
            size = row_bytes
    return groups
