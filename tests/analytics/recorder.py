"""Writes a log by plain SQL, to the millisecond, for tests that know what the statistics must say of it."""

import itertools
import json
import sqlite3
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from chat_core.models import utc_text
from chat_core.store.database import Database

START = datetime(2026, 3, 10, 9, tzinfo=UTC)


class Recorder:
    """One database; close it before a workbench opens the same folder."""

    def __init__(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self.file = file
        self._store = Database.open(file)
        self._numbers = itertools.count(1)

    def close(self) -> None:
        self._store.close()

    def sql(self, statement: str, *values: object) -> list[sqlite3.Row]:
        with self._store.write() as db:
            return db.execute(statement, values).fetchall()

    def insert(self, table: str, **values: object) -> int:
        names, marks = ", ".join(values), ", ".join("?" for _ in values)
        with self._store.write() as db:
            return int(
                db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(values.values())).lastrowid or 0
            )

    def session(self, owner: str = "local", title: str = "A session", at: datetime = START) -> int:
        moment = utc_text(at)
        return self.insert(
            "chat_session",
            session_uuid=str(uuid.uuid4()),
            owner=owner,
            project="default",
            title=title,
            runtime="hermes",
            agent_session="agent",
            created_at=moment,
            last_message_at=moment,
            updated_at=moment,
        )

    def user_message(
        self,
        session_id: int,
        parent_id: int | None = None,
        *,
        order: int = 0,
        active: bool = True,
        at: datetime = START,
    ) -> int:
        return self.insert(
            "chat_message",
            message_uuid=str(uuid.uuid4()),
            session_id=session_id,
            parent_id=parent_id,
            branch_order=order,
            is_active=int(active),
            role="USER",
            content="?",
            status="SENT",
            created_at=utc_text(at),
        )

    def run(
        self,
        session_id: int,
        parent_id: int | None = None,
        *,
        status: str = "SUCCESS",
        model: str = "model-a",
        skill: str = "",
        runtime: str = "hermes",
        order: int = 0,
        active: bool = True,
        at: datetime = START,
    ) -> "RecordedRun":
        """An ASSISTANT message under a USER message (made when not given), with its run and `run_started`."""
        parent = parent_id or self.user_message(session_id, self._leaf(session_id), at=at)
        run_id = f"run-{next(self._numbers)}"
        message_id = self.insert(
            "chat_message",
            message_uuid=str(uuid.uuid4()),
            session_id=session_id,
            parent_id=parent,
            branch_order=order,
            is_active=int(active),
            run_id=run_id,
            role="ASSISTANT",
            status=status,
            runtime=runtime,
            model_id=model,
            skill_folder=skill,
            created_at=utc_text(at),
        )
        run = RecordedRun(self, session_id, message_id, run_id, at)
        self.insert(
            "run",
            run_id=run_id,
            message_id=message_id,
            session_id=session_id,
            owner="local",
            request_json="{}",
            status=status,
            lease_owner="test" if status in {"RUNNING", "WAITING"} else "",
            first_seq=1,
            started_at=utc_text(at),
            ended_at=None if status in {"RUNNING", "WAITING"} else utc_text(at),
        )
        run.entry("run_started", meta={"run_id": run_id})
        return run

    def _leaf(self, session_id: int) -> int | None:
        rows = self.sql("SELECT MAX(id) FROM chat_message WHERE session_id = ? AND role = 'ASSISTANT'", session_id)
        return rows[0][0] if rows and rows[0][0] else None


class RecordedRun:
    """Adds entries to one run; `at` is its clock."""

    def __init__(self, recorder: Recorder, session_id: int, message_id: int, run_id: str, at: datetime) -> None:
        self._recorder = recorder
        self.session_id, self.message_id, self.run_id, self.at = session_id, message_id, run_id, at
        self._calls = itertools.count(1)

    def entry(self, kind: str, *, at: datetime | None = None, meta: dict[str, Any] | None = None, **values: Any) -> int:
        last = self._recorder.sql("SELECT MAX(seq) FROM chat_message_log WHERE message_id = ?", self.message_id)
        return self._recorder.insert(
            "chat_message_log",
            message_id=self.message_id,
            seq=(last[0][0] or 0) + 1,
            kind=kind,
            meta_json=json.dumps(meta) if meta else None,
            created_at=utc_text(at or self.at),
            **values,
        )

    def wait(self, milliseconds: float) -> None:
        self.at += timedelta(milliseconds=milliseconds)

    def call(
        self,
        tool: str,
        arguments: dict[str, Any] | str = "{}",
        *,
        ms: int = 100,
        error: bool = False,
        result: str = "ok",
        finished: bool = True,
        call_id: str | None = None,
        told_ms: int | None = None,
    ) -> str:
        """One call and, when finished, its result `ms` later; the run's clock goes on by `ms`."""
        key = f"call-{next(self._calls)}" if call_id is None else call_id
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        self.entry("tool_call", tool_name=tool, call_id=key, content=text)
        if finished:
            self.wait(ms)
            self.result(tool, key, ms if told_ms is None else told_ms, error=error, text=result)
        return key

    def result(self, tool: str, call_id: str, ms: int | None, *, error: bool = False, text: str = "ok") -> None:
        self.entry("tool_result", tool_name=tool, call_id=call_id, content=text, duration_ms=ms, is_error=int(error))

    def question(self, kind: str, wait_ms: int | None, *, answer: str = "once", status: str = "ANSWERED") -> str:
        """A question, answered `wait_ms` later; with None it stays open."""
        question_id = f"question-{self.run_id}-{next(self._calls)}"
        self.entry(f"{kind}_request", content="May I?", meta={"question_id": question_id})
        asked = self.at
        if wait_ms is not None:
            self.wait(wait_ms)
        answered = status == "ANSWERED" and wait_ms is not None
        self._recorder.insert(
            "run_question",
            question_id=question_id,
            run_id=self.run_id,
            kind=kind,
            question="May I?",
            status="WAITING" if wait_ms is None else status,
            answer=answer if answered else None,
            answered_by="local" if answered else None,
            asked_at=utc_text(asked),
            answered_at=utc_text(self.at) if answered else None,
        )
        return question_id

    def usage(self, input_tokens: int, output_tokens: int) -> None:
        self.entry("usage", meta={"input_tokens": input_tokens, "output_tokens": output_tokens})

    def end(self, status: str = "SUCCESS") -> "RecordedRun":
        kinds = {"SUCCESS": "run_finished", "FAILED": "run_failed", "STOPPED": "run_stopped"}
        self.entry(kinds.get(status, "run_interrupted"), meta={"run_id": self.run_id, "status": status})
        moment = utc_text(self.at)
        self._recorder.sql("UPDATE run SET status = ?, ended_at = ? WHERE run_id = ?", status, moment, self.run_id)
        self._recorder.sql(
            "UPDATE chat_message SET status = ?, completed_at = ? WHERE id = ?", status, moment, self.message_id
        )
        return self
