"""Questions of the agent to a person: asked once, answered once."""

import sqlite3
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from chat_core.errors import AlreadyAnswered, NotFound, QuestionClosed
from chat_core.models import Question, QuestionKind, User, utc_text
from chat_core.store.database import Database
from chat_core.store.rows import QUESTION_COLUMNS, dump, question_from


@dataclass(frozen=True, slots=True)
class NewQuestion:
    question_id: str
    kind: QuestionKind
    question: str
    choices: tuple[str, ...]
    detail: dict[str, Any]


class Questions:
    def __init__(self, database: Database) -> None:
        self._database = database

    def open_in(self, run_id: str) -> Question | None:
        """The oldest question of the run that waits for an answer."""
        with self._database.read() as db:
            row = db.execute(
                f"""
                SELECT {QUESTION_COLUMNS} FROM run_question q WHERE q.run_id = ? AND q.status = 'WAITING'
                ORDER BY q.asked_at, q.rowid LIMIT 1
                """,
                (run_id,),
            ).fetchone()
            return None if row is None else question_from(row)

    def list_for(self, run_id: str) -> list[Question]:
        with self._database.read() as db:
            rows = db.execute(
                f"SELECT {QUESTION_COLUMNS} FROM run_question q WHERE q.run_id = ? ORDER BY q.asked_at, q.rowid",
                (run_id,),
            )
            return [question_from(row) for row in rows]

    def get(self, db: sqlite3.Connection, run_id: str, question_id: str) -> Question:
        row = db.execute(
            f"SELECT {QUESTION_COLUMNS} FROM run_question q WHERE q.run_id = ? AND q.question_id = ?",
            (run_id, question_id),
        ).fetchone()
        if row is None:
            raise NotFound(f"there is no question {question_id!r} in run {run_id!r}")
        return question_from(row)

    def record_answer(
        self, db: sqlite3.Connection, user: User, run_id: str, question_id: str, answer: str, now: datetime
    ) -> tuple[Question, bool]:
        """Compare and set: the first answer wins. Returns the question and whether this call answered it.

        Raises `AlreadyAnswered` for another answer than the recorded one and `QuestionClosed` when its run ended.
        """
        changed = db.execute(
            """
            UPDATE run_question SET status = 'ANSWERED', answer = ?, answered_by = ?, answered_at = ?
            WHERE run_id = ? AND question_id = ? AND status = 'WAITING'
            """,
            (answer, user.key, utc_text(now), run_id, question_id),
        ).rowcount
        question = self.get(db, run_id, question_id)
        if changed:
            return question, True
        if question.status == "CLOSED":
            raise QuestionClosed("This question is closed: the run ended before it was answered.")
        if question.answer != answer:
            raise AlreadyAnswered(f"This question was already answered: {question.answer}", answer=question.answer)
        return question, False

    def undelivered(self, run_id: str) -> list[Question]:
        """Recorded answers that the Bridge has not confirmed yet."""
        return [item for item in self.list_for(run_id) if item.status == "ANSWERED" and not item.delivered]

    def mark_delivered(self, question_id: str) -> None:
        with self._database.write() as db:
            db.execute("UPDATE run_question SET delivered = 1 WHERE question_id = ?", (question_id,))


def open_question(db: sqlite3.Connection, run_id: str, new: NewQuestion, at: str) -> None:
    """Add a waiting question; the same question_id again changes nothing."""
    db.execute(
        """
        INSERT INTO run_question (question_id, run_id, kind, question, choices_json, detail_json, asked_at)
        VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (question_id) DO NOTHING
        """,
        (new.question_id, run_id, new.kind, new.question, dump(list(new.choices)), dump(new.detail), at),
    )
