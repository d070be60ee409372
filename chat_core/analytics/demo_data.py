"""A believable, seeded month of work for a look at the statistics without a month of use.

`python -m chat_core.analytics.demo_data FOLDER [--until YYYY-MM-DD] [--seed N]` fills a new data folder; it refuses
one that already holds a database, so it never mixes with real data.

What the month hides, for the charts to show: five tools that fail in different ways, a day on which one tool is
slow, an afternoon on which another fails, agents that go round in circles, a tool that may poll, approvals that
wait over lunch and over night, regenerated answers, and one model that needs more calls than the other.
"""

import argparse
import json
import random
import sqlite3
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from chat_core.errors import InvalidInput, ParleyError
from chat_core.models import LOCAL_USER, utc_text
from chat_core.store.database import Database

DAYS = 31
SLOW_DAYS_AGO = 6
FAILING_DAYS_AGO = 12
ZONE = ZoneInfo("Europe/Berlin")

_MODELS = (("nova-large", 0.6), ("nova-mini", 0.4))
_SKILLS = (("", 0.45), ("code-review", 0.3), ("market-research", 0.25))
_TASKS = (
    ("Why does the nightly import stop at row 4,000?", "code"),
    ("Review the change to the invoice module and list the risks", "code"),
    ("The tests of the billing service are flaky. Find out which and why", "code"),
    ("Update the change log for the last release", "code"),
    ("Which suppliers raised their prices since spring?", "research"),
    ("Compare the three offers for the new coffee machines", "research"),
    ("Collect what is known about the new packaging rules", "research"),
    ("Summarise the support tickets of this week", "research"),
    ("Move the old reports into the archive folder", "code"),
    ("Write a first draft of the quarterly note", "research"),
)
_FOLLOW_UPS = (
    "Go on",
    "And for last year?",
    "Make it shorter",
    "Please check the second point again",
    "Thanks, and now?",
)
_PATHS = ("src/import.py", "src/billing/invoice.py", "tests/test_billing.py", "docs/CHANGELOG.md", "reports/2024.csv")
_COMMANDS = ("pytest -x", "git log --oneline -20", "ls -la reports", "python import.py --dry-run", "grep -rn TODO src")
_QUERIES = ("packaging rules 2026", "supplier price increase", "coffee machine comparison", "flaky tests causes")
_NEXT = {
    "code": {
        "todo": (("read_file", 0.6), ("terminal", 0.25), ("clarify", 0.15)),
        "read_file": (("read_file", 0.35), ("terminal", 0.4), ("write_file", 0.25)),
        "terminal": (("read_file", 0.35), ("terminal", 0.3), ("write_file", 0.2), ("process", 0.15)),
        "write_file": (("terminal", 0.8), ("read_file", 0.2)),
        "process": (("process", 0.6), ("terminal", 0.4)),
        "clarify": (("read_file", 0.6), ("terminal", 0.4)),
    },
    "research": {
        "todo": (("web_search", 0.8), ("read_file", 0.08), ("clarify", 0.12)),
        "web_search": (("fetch_page", 0.7), ("web_search", 0.3)),
        "fetch_page": (("fetch_page", 0.4), ("web_search", 0.3), ("write_file", 0.3)),
        "read_file": (("web_search", 0.5), ("write_file", 0.5)),
        "write_file": (("read_file", 0.4), ("web_search", 0.6)),
        "clarify": (("web_search", 1.0),),
    },
}
# median of the duration in ms and its spread (sigma of the logarithm)
_PACE = {
    "todo": (4, 0.4),
    "read_file": (18, 0.6),
    "write_file": (35, 0.7),
    "terminal": (2_400, 1.3),
    "process": (900, 0.3),
    "web_search": (1_100, 0.5),
    "fetch_page": (1_900, 0.8),
    "clarify": (5, 0.2),
}
_FAILURES = {
    "read_file": (0.05, "FileNotFoundError: there is no such file"),
    "write_file": (0.02, "PermissionError: the folder is read-only"),
    "terminal": (0.11, "exit code 1"),
    "web_search": (0.04, "429 too many requests"),
    "fetch_page": (0.09, "503 service unavailable"),
}


@dataclass(slots=True)
class _Call:
    tool: str
    arguments: dict[str, object]
    duration_ms: int
    is_error: bool
    result: str
    result_bytes: int
    question: tuple[str, str, str, int] | None = None
    """kind, question, answer, wait in ms"""


@dataclass(slots=True)
class _Writer:
    db: sqlite3.Connection
    chance: random.Random
    until: datetime

    def insert(self, table: str, **values: object) -> int:
        names = ", ".join(values)
        marks = ", ".join("?" for _ in values)
        cursor = self.db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(values.values()))
        return int(cursor.lastrowid or 0)

    def new_uuid(self) -> str:
        return str(uuid.UUID(int=self.chance.getrandbits(128), version=4))


def fill(database_file: Path, until: datetime, seed: int = 7) -> dict[str, int]:
    """Write the month that ends at `until` into a new database. The same seed and time give the same month."""
    if database_file.exists():
        raise InvalidInput(f"{database_file.parent} already holds a database; demo data needs a folder of its own.")
    database_file.parent.mkdir(parents=True, exist_ok=True)
    store = Database.open(database_file)
    try:
        with store.write() as db:
            writer = _Writer(db, random.Random(seed), until)  # noqa: S311
            for days_ago in range(DAYS - 1, -1, -1):
                _write_day(writer, until.astimezone(ZONE).date() - timedelta(days=days_ago), days_ago)
            return {
                table: db.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
                for table in ("chat_session", "chat_message", "chat_message_log", "run", "run_question")
            }
    finally:
        store.close()


def _write_day(writer: _Writer, day: date, days_ago: int) -> None:
    weekend = day.isoweekday() > 5
    for _ in range(writer.chance.randint(1, 3) if weekend else writer.chance.randint(9, 15)):
        hour = min(max(writer.chance.gauss(13, 3.2), 6.0), 19.0)
        begin = datetime.combine(day, time(), tzinfo=ZONE) + timedelta(hours=hour)
        # The longest sessions take about three hours; nothing may lie in the future.
        if begin < writer.until - timedelta(hours=3):
            _write_session(writer, begin.astimezone(UTC), days_ago)


def _write_session(writer: _Writer, begin: datetime, days_ago: int) -> None:
    chance = writer.chance
    task, area = chance.choice(_TASKS)
    model, skill = _pick(chance, _MODELS), _pick(chance, _SKILLS)
    session_id = writer.insert(
        "chat_session",
        session_uuid=writer.new_uuid(),
        owner=LOCAL_USER.key,
        project=LOCAL_USER.project,
        title=task[:30],
        runtime="hermes",
        model_id=model,
        skill_folder=skill,
        agent_session=f"demo-{writer.new_uuid()[:8]}",
        created_at=utc_text(begin),
        last_message_at=utc_text(begin),
        updated_at=utc_text(begin),
    )
    moment, parent = begin, None
    for turn in range(chance.choices((1, 2, 3, 5), (4, 3, 2, 1))[0]):
        question = task if turn == 0 else chance.choice(_FOLLOW_UPS)
        user_id = writer.insert(
            "chat_message",
            message_uuid=writer.new_uuid(),
            session_id=session_id,
            parent_id=parent,
            branch_order=0,
            role="USER",
            content=question,
            status="SENT",
            created_at=utc_text(moment),
        )
        versions = 2 if chance.random() < 0.12 else 1
        for version in range(versions):
            answered_by = model if version == 0 else "nova-large"
            is_chosen = version == versions - 1
            parent, moment = _write_turn(
                writer, session_id, user_id, version, is_chosen, answered_by, skill, area, moment, days_ago
            )
            moment += timedelta(seconds=chance.randint(20, 300))
        if moment > writer.until - timedelta(hours=1):
            break
    writer.db.execute(
        "UPDATE chat_session SET last_message_at = ?, updated_at = ?, last_ended_at = ?, seen_at = ?, leaf_id = ?"
        " WHERE id = ?",
        (*[utc_text(moment)] * 4, parent, session_id),
    )


def _write_turn(
    writer: _Writer,
    session_id: int,
    user_id: int,
    version: int,
    is_chosen: bool,
    model: str,
    skill: str,
    area: str,
    begin: datetime,
    days_ago: int,
) -> tuple[int, datetime]:
    """One ASSISTANT message with its run, log and questions. Returns its id and when it ended."""
    chance = writer.chance
    run_id = f"demo-{writer.new_uuid()}"
    calls = _plan(chance, area, model, days_ago, begin)
    status = _ending(chance, calls)
    if status == "SUCCESS":
        answer = "Here is what I found.\n\n" + "\n".join(f"* {call.tool}: done" for call in calls[:5])
    else:
        answer = ""
    message_id = writer.insert(
        "chat_message",
        message_uuid=writer.new_uuid(),
        session_id=session_id,
        parent_id=user_id,
        is_active=int(is_chosen),
        branch_order=version,
        run_id=run_id,
        role="ASSISTANT",
        content=answer,
        status=status,
        runtime="hermes",
        model_id=model,
        skill_folder=skill,
        created_at=utc_text(begin),
    )
    log = _Log(writer, message_id, begin)
    log.add("run_started", meta={"run_id": run_id, "model_id": model, "skill_folder": skill})
    questions: list[tuple[str, _Call, datetime, datetime]] = []
    for number, call in enumerate(calls):
        log.wait(chance.lognormvariate(7.2, 0.6))
        log.add("thinking", content="I look at the next thing that can tell me more.")
        call_id = f"call_{number}"
        log.add("tool_call", content=json.dumps(call.arguments), tool_name=call.tool, call_id=call_id)
        duration = call.duration_ms
        if call.question:
            kind, text, reply, wait_ms = call.question
            question_id = f"demo-{writer.new_uuid()}"
            log.wait(20)
            choices = ["once", "session", "deny"] if kind == "approval" else []
            meta: dict[str, object] = {"question_id": question_id, "choices": choices}
            log.add(f"{kind}_request", content=text, meta=meta)
            asked = log.at
            log.wait(wait_ms)
            log.add(
                "approval_decision" if kind == "approval" else "clarify_answer",
                content=reply,
                meta={"question_id": question_id, "answered_by": LOCAL_USER.key},
            )
            questions.append((question_id, call, asked, log.at))
            duration += wait_ms + 20
        log.wait(call.duration_ms)
        cut = number == len(calls) - 1 and status in {"STOPPED", "INTERRUPTED"} and not call.question
        if not cut:
            log.add(
                "tool_result",
                content=call.result,
                tool_name=call.tool,
                call_id=call_id,
                duration_ms=duration,
                is_error=int(call.is_error),
                meta={"bytes": call.result_bytes} if call.result_bytes > 65_536 else None,
            )
    tokens = sum(len(json.dumps(call.arguments)) + call.result_bytes for call in calls) // 4
    usage = {"input_tokens": 2_000 + tokens * 2, "output_tokens": 150 + 60 * len(calls)}
    log.wait(chance.lognormvariate(7.6, 0.5))
    log.add("usage", meta=dict(usage))
    kinds = {"SUCCESS": "run_finished", "FAILED": "run_failed", "STOPPED": "run_stopped"}
    error = {"code": "model_timeout", "message": "The model did not answer in time."} if status == "FAILED" else None
    log.add(
        kinds.get(status, "run_interrupted"),
        content=answer if status in {"SUCCESS", "STOPPED"} else "",
        meta={"run_id": run_id, "status": status, **({"error": error} if error else {})},
    )
    log.flush()
    writer.db.execute(
        "UPDATE chat_message SET usage_json = ?, completed_at = ?, error = ? WHERE id = ?",
        (json.dumps(usage), utc_text(log.at), json.dumps(error) if error else None, message_id),
    )
    writer.insert(
        "run",
        run_id=run_id,
        message_id=message_id,
        session_id=session_id,
        owner=LOCAL_USER.key,
        request_json="{}",
        status=status,
        bridge_seq=log.seq,
        started_at=utc_text(begin),
        ended_at=utc_text(log.at),
    )
    for question_id, call, asked, answered in questions:
        kind, text, reply, _ = call.question or ("clarify", "", "", 0)
        writer.insert(
            "run_question",
            question_id=question_id,
            run_id=run_id,
            kind=kind,
            question=text,
            status="ANSWERED",
            answer=reply,
            answered_by=LOCAL_USER.key,
            asked_at=utc_text(asked),
            answered_at=utc_text(answered),
            delivered=1,
        )
    return message_id, log.at


class _Log:
    """The log of one message: gapless numbers, a clock that only goes on."""

    def __init__(self, writer: _Writer, message_id: int, begin: datetime) -> None:
        self._writer = writer
        self._message_id = message_id
        self._rows: list[tuple[object, ...]] = []
        self.at = begin
        self.seq = 0

    def wait(self, milliseconds: float) -> None:
        self.at += timedelta(milliseconds=max(int(milliseconds), 1))

    def add(
        self,
        kind: str,
        content: str = "",
        tool_name: str = "",
        call_id: str = "",
        duration_ms: int | None = None,
        is_error: int = 0,
        meta: dict[str, object] | None = None,
    ) -> None:
        self.seq += 1
        stored = json.dumps(meta) if meta else None
        moment = utc_text(self.at)
        self._rows.append(
            (self._message_id, self.seq, kind, content, tool_name, call_id, duration_ms, is_error, stored, moment)
        )

    def flush(self) -> None:
        self._writer.db.executemany(
            "INSERT INTO chat_message_log (message_id, seq, kind, content, tool_name, call_id, duration_ms, is_error,"
            " meta_json, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            self._rows,
        )


def _plan(chance: random.Random, area: str, model: str, days_ago: int, begin: datetime) -> list[_Call]:
    """The calls of one run. The small model needs more of them and goes round in circles more often."""
    if chance.random() < 0.12:
        return []
    small = model == "nova-mini"
    tool = "todo" if chance.random() < 0.5 else _pick(chance, _NEXT[area]["todo"])
    calls: list[_Call] = []
    for _ in range(max(1, int(chance.gauss(8 if small else 6, 3)))):
        call = _call(chance, tool, area, days_ago, begin)
        calls.append(call)
        if call.is_error:
            reaction = chance.random()
            if reaction < (0.45 if small else 0.2):
                again = _call(chance, tool, area, days_ago, begin)
                again.arguments, again.is_error = call.arguments, chance.random() < 0.75
                again.result = call.result if again.is_error else "ok"
                calls.append(again)
            elif reaction < 0.7:
                calls.append(_call(chance, tool, area, days_ago, begin))
            elif reaction < 0.8:
                return calls
        tool = _pick(chance, _NEXT[area].get(tool, (("read_file", 1.0),)))
    if chance.random() < (0.12 if small else 0.03):
        calls += _loop(chance, area, days_ago, begin)
    return calls


def _loop(chance: random.Random, area: str, days_ago: int, begin: datetime) -> list[_Call]:
    """The same call again and again, or two calls in turn."""
    first = _call(chance, "terminal" if area == "code" else "fetch_page", area, days_ago, begin)
    first.question = None
    second = _call(chance, "read_file" if area == "code" else "web_search", area, days_ago, begin)
    kinds = [first] if chance.random() < 0.6 else [first, second]
    rounds = chance.randint(3, 9)
    return [
        _Call(one.tool, one.arguments, _duration(chance, one.tool), one.is_error, one.result, one.result_bytes)
        for _ in range(rounds)
        for one in kinds
    ]


def _call(chance: random.Random, tool: str, area: str, days_ago: int, begin: datetime) -> _Call:
    rate, failure = _FAILURES.get(tool, (0.0, ""))
    afternoon = begin.astimezone(ZONE).hour >= 12
    if tool == "fetch_page" and days_ago == FAILING_DAYS_AGO and afternoon:
        rate = 0.75
    is_error = chance.random() < rate
    duration = _duration(chance, tool)
    if tool == "web_search" and days_ago == SLOW_DAYS_AGO:
        duration *= 7
    if is_error and tool == "fetch_page":
        duration = 30_000 + chance.randint(0, 400)
    size = int(chance.lognormvariate(*{"fetch_page": (9.5, 1.2), "read_file": (7.5, 1.0)}.get(tool, (5.0, 0.8))))
    result = failure if is_error else "ok " + "·" * min(size // 40, 200)
    return _Call(tool, _arguments(chance, tool), duration, is_error, result, size, _question(chance, tool, days_ago))


def _question(chance: random.Random, tool: str, days_ago: int) -> tuple[str, str, str, int] | None:
    patience = int(chance.lognormvariate(11, 1.4))
    if days_ago > 1 and chance.random() < 0.08:
        patience = chance.randint(3, 14) * 3_600_000
    if tool == "terminal" and chance.random() < 0.08:
        reply = "deny" if chance.random() < 0.15 else "once"
        return "approval", "The agent wants to run a command that changes files.", reply, patience
    if tool == "clarify":
        return "clarify", "Which of the two folders do you mean?", "the second one", patience
    return None


def _arguments(chance: random.Random, tool: str) -> dict[str, object]:
    if tool in {"read_file", "write_file"}:
        lines = (
            {"content": "line\n" * chance.randint(1, 40)} if tool == "write_file" else {"offset": chance.randint(0, 9)}
        )
        return {"path": chance.choice(_PATHS), **lines}
    if tool == "terminal":
        return {"command": chance.choice(_COMMANDS), "timeout": chance.choice((30, 60, 120))}
    if tool == "process":
        return {"action": "poll", "session": "build"}
    if tool == "web_search":
        return {"query": chance.choice(_QUERIES), "limit": chance.choice((5, 10))}
    if tool == "fetch_page":
        return {"url": f"https://example.org/page/{chance.randint(1, 60)}"}
    return {"question": "Which folder?"} if tool == "clarify" else {"todos": chance.randint(2, 6)}


def _duration(chance: random.Random, tool: str) -> int:
    median, spread = _PACE[tool]
    return max(1, int(median * chance.lognormvariate(0, spread)))


def _ending(chance: random.Random, calls: Sequence[_Call]) -> str:
    failed = sum(call.is_error for call in calls)
    weights = (0.9, 0.03 + 0.02 * failed, 0.04 + 0.02 * failed, 0.01)
    return chance.choices(("SUCCESS", "FAILED", "STOPPED", "INTERRUPTED"), weights)[0]


def _pick(chance: random.Random, weighted: Sequence[tuple[str, float]]) -> str:
    return chance.choices([name for name, _ in weighted], [weight for _, weight in weighted])[0]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Fill a separate data folder with a month of demo data.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--until", type=date.fromisoformat, default=None, help="default: now")
    parser.add_argument("--seed", type=int, default=7)
    chosen = parser.parse_args(arguments)
    until = datetime.combine(chosen.until, time(23, 59), tzinfo=ZONE) if chosen.until else datetime.now(ZONE)
    try:
        counts = fill(chosen.folder / "parley.db", until, chosen.seed)
    except ParleyError as error:
        print(error.message, file=sys.stderr)
        return 1
    print(", ".join(f"{count:,} {name}" for name, count in counts.items()))
    print(f"Look at it with: PARLEY_DATA_DIR={chosen.folder} make run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
