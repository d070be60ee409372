"""The workbench: the one door through which pages and API act on sessions, messages and runs."""

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from chat_core.analytics.analytics import Analytics
from chat_core.arguments import MAX_ANSWER_CHARS, check_answer, checked_text, checked_title
from chat_core.backup import back_up
from chat_core.bridge.client import BridgeClient
from chat_core.bridge.process import Bridge, BridgeState, bridge_for
from chat_core.bridge.protocol import Health, MemoryText, ModelChoice, RunHost, RunRequest, SkillChoice
from chat_core.bridge_choices import BridgeChoices
from chat_core.config import Settings
from chat_core.context import partial_turn, turns_above
from chat_core.errors import (
    BridgeUnavailable,
    Conflict,
    InvalidInput,
    ParleyError,
    SessionBusy,
    StoreUnavailable,
    TooLarge,
)
from chat_core.event_bus import EventBus
from chat_core.exports.archive import archive_of
from chat_core.exports.json_file import json_of, read_file, record_of
from chat_core.exports.markdown import markdown_of
from chat_core.fail_point import fail_point
from chat_core.log_writer import LogWriter
from chat_core.memory import BranchMemory, branch_memory, condensed_counts
from chat_core.models import (
    Activity,
    Branch,
    LogEntry,
    Message,
    NewEntry,
    OutlineMessage,
    Question,
    Run,
    RunState,
    SearchPage,
    Session,
    SessionPage,
    SessionRow,
    SessionStatus,
    Started,
    TurnContext,
    User,
    utc_text,
)
from chat_core.recovery import recover
from chat_core.run_pool import RunPool
from chat_core.store import contexts, messages
from chat_core.store.housekeeping import OldRecords
from chat_core.store.messages import NewMessage, message_by_id, owned_message
from chat_core.store.runs import NewRun, insert_entries, refresh_waiting
from chat_core.store.sessions import owned_session, session_by_id
from chat_core.store.store import Store
from chat_core.text import storable
from chat_core.upkeep import Duty, Upkeep

VERSION = "0.1.0"
UNDO_SECONDS = 10.0
PURGE_EVERY_SECONDS = 2.0
HOUSEKEEPING_SECONDS = 300.0
FIRST_HOUSEKEEPING_SECONDS = 20.0
RECOVERY_SECONDS = 60.0
FOLLOW_SECONDS = 5.0
CONTINUE_TEXT = (
    "Your work on the message above was interrupted. Continue it from exactly where it stopped, "
    "without repeating what is already done or written."
)


def _now() -> datetime:
    return datetime.now(UTC)


class Workbench:
    """Everything a page or a caller of the API can do. Build it with `open_workbench`.

    Every method takes the acting user and refuses what is not theirs as `NotFound`. Ids are the public ones.
    """

    def __init__(self, settings: Settings, store: Store, bridge: Bridge | None, host: RunHost | None) -> None:
        self.settings = settings
        self.store = store
        self._bus = EventBus()
        self._bridge = bridge
        self._client = BridgeClient(bridge.address, on_reconnecting=self._reconnecting) if bridge else None
        self._host: RunHost = host or self._bridge_client()
        self._writer = LogWriter(store, self._bus, _now)
        self._pool = RunPool(store, self._writer, self._bus, self._host, _now, settings.max_active_runs)
        self._choices = BridgeChoices(self._client)
        self.analytics = Analytics(settings)
        self._closed = threading.Event()
        self._upkeep = Upkeep(
            [
                Duty("purge", PURGE_EVERY_SECONDS, 0.0, lambda _: self._purge(_now())),
                Duty("housekeeping", HOUSEKEEPING_SECONDS, FIRST_HOUSEKEEPING_SECONDS, self._keep_house),
            ]
        )

    def start(self) -> None:
        """Reach for the Bridge and rejoin the runs of an earlier process; returns at once."""
        if self._bridge is not None:
            self._bridge.start()
        threading.Thread(target=self._recover, name="recovery", daemon=True).start()
        self._upkeep.start()

    def close(self) -> None:
        """Let go of everything without ending a run: a Bridge with work in hand goes on, the next start rejoins."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._pool.close()
        self._upkeep.close(0.0)
        if self._client is not None:
            self._client.close()
        if self._bridge is not None:
            self._bridge.stop()
        self._pool.join(1.0)
        self._writer.close()
        self._upkeep.close()
        self.analytics.close()
        self.store.close()

    # -- sessions ------------------------------------------------------------------------------------------------

    def create_session(
        self, user: User, *, title: str = "", model_id: str = "", skill_folder: str = "", runtime: str = "hermes"
    ) -> Session:
        return self.store.sessions.create(
            user,
            title=checked_title(title),
            model_id=storable(model_id),
            skill_folder=storable(skill_folder),
            runtime=storable(runtime),
            now=_now(),
        )

    def get_session(self, user: User, session_id: str) -> Session:
        return self.store.sessions.get(user, session_id)

    def session_row(self, user: User, session_id: str) -> SessionRow:
        return self.store.sessions.row(user, session_id)

    def list_sessions(
        self,
        user: User,
        *,
        query: str = "",
        status: SessionStatus = "ACTIVE",
        before: str | None = None,
        limit: int = 30,
    ) -> SessionPage:
        """Pinned first, then newest activity; `before` is the id of the last session already seen.

        With `query` only sessions whose title or one of whose messages holds it.
        """
        return self.store.sessions.list_for(user, status=status, query=storable(query), before=before, limit=limit)

    def search(self, user: User, query: str, *, limit: int = 20, before: str | None = None) -> SearchPage:
        """Return the user's titles and messages that hold `query` as plain text, newest first.

        `before` is the `next_before` of the page before.
        """
        return self.store.search.search(user, storable(query), before=before, limit=limit)

    def update_session(
        self,
        user: User,
        session_id: str,
        *,
        title: str | None = None,
        model_id: str | None = None,
        skill_folder: str | None = None,
        pinned: bool | None = None,
        status: SessionStatus | None = None,
    ) -> Session:
        """Change what is given. A title becomes the user's own and is never overwritten again."""
        return self.store.sessions.update(
            user,
            session_id,
            title=None if title is None else checked_title(title),
            model_id=None if model_id is None else storable(model_id),
            skill_folder=None if skill_folder is None else storable(skill_folder),
            pinned=pinned,
            status=status,
            now=_now(),
        )

    def delete_session(self, user: User, session_id: str, undo_seconds: float = UNDO_SECONDS) -> None:
        """Stop the session's run and hide the session; when the time for an undo is over, everything of it goes."""
        self.delete_sessions(user, [session_id], undo_seconds)

    def delete_sessions(self, user: User, session_ids: Sequence[str], undo_seconds: float = UNDO_SECONDS) -> None:
        """Delete all of them or, when one is not the user's, none. `undo_seconds=0` removes them at once."""
        sessions = [self.store.sessions.get(user, session_id) for session_id in session_ids]
        for session in sessions:
            run = self.store.runs.active_in(user, session.id)
            if run is not None:
                with suppress(ParleyError):
                    self.stop(user, run.run_id)
                fail_point("delete.stopped")
        now = _now()
        self.store.sessions.hide(user, session_ids, now, now + timedelta(seconds=undo_seconds))
        fail_point("delete.hidden")
        if undo_seconds <= 0:
            self._purge(now)

    def restore_session(self, user: User, session_id: str) -> Session:
        """Undo a deletion. Raises `NotFound` once the session is gone for good."""
        return self.restore_sessions(user, [session_id])[0]

    def restore_sessions(self, user: User, session_ids: Sequence[str]) -> list[Session]:
        return self.store.sessions.restore(user, session_ids)

    def archive_sessions(self, user: User, session_ids: Sequence[str], status: SessionStatus = "ARCHIVED") -> None:
        """Archive many sessions, or with `ACTIVE` bring them back: all of them or none."""
        self.store.sessions.set_status(user, session_ids, status, _now())

    def export(
        self,
        user: User,
        session_id: str,
        file_format: Literal["md", "json"] = "md",
        branch: Literal["active", "all"] | None = None,
    ) -> str:
        """Return the session as the text of a file; without `branch` Markdown holds the active one, JSON all."""
        record = self.store.transfer.read(user, session_id)
        if file_format == "json":
            return json_of(record, whole_tree=branch != "active")
        return markdown_of(record, whole_tree=branch == "all")

    def export_many(self, user: User, session_ids: Sequence[str], file_format: Literal["md", "json"] = "json") -> bytes:
        """Return a zip archive with one file for each session, whole trees: each JSON file can be imported again."""
        sessions = [self.store.sessions.get(user, session_id) for session_id in session_ids]
        return archive_of(
            ((session.title, self.export(user, session.uuid, file_format, "all")) for session in sessions), file_format
        )

    def import_session(self, user: User, data: bytes | str) -> tuple[Session, bool]:
        """Store the session of a JSON export under new ids and say whether it is new.

        The same content again is the same session; when that was deleted a moment ago, it is brought back.
        Raises `InvalidInput` with what is wrong with the file.
        """
        record = record_of(read_file(data), user)
        created = self.store.transfer.insert(user, record)
        if not created:
            self.store.sessions.restore(user, [record.session.uuid])
        return self.store.sessions.get(user, record.session.uuid), created

    def mark_seen(self, user: User, session_id: str) -> None:
        """Remember that the user has looked at the session: its unseen dot goes."""
        self.store.sessions.mark_seen(user, session_id, _now())

    def has_activity(self, user: User) -> bool:
        """Whether any run of the user is at work or waits."""
        return self.store.runs.count_active(user) > 0

    def reset(self, user: User, session_id: str) -> Message:
        """Put a marker after the last message; later runs get only what follows it. The history stays."""
        with self.store.database.write() as db:
            session = owned_session(db, user, session_id)
            leaf = messages.leaf_of(db, session.id)
            if leaf is None:
                raise InvalidInput("There is nothing to forget yet: the session has no messages.")
            if self._active_in(db, session) is not None:
                raise SessionBusy("A run is at work in this session. Wait for it or stop it, then reset.")
            marker = messages.append(db, session.id, leaf, NewMessage("SYSTEM", "", "RESET"), utc_text(_now()))
            self.store.sessions.set_agent_session(db, session.id, uuid.uuid4().hex)
        with suppress(ParleyError):
            self._host.forget(session.agent_session)
        return marker

    # -- reading -------------------------------------------------------------------------------------------------

    def branch(
        self,
        user: User,
        session_id: str,
        *,
        before: str | None = None,
        limit: int = 80,
        message: str | None = None,
        later: int | None = None,
    ) -> Branch:
        """Return a window of the active branch, or of the branch that holds `message` (nothing stored changes).

        `later` is how many messages below `message` the window may show; half of them when it is not given.
        """
        return self.store.messages.branch(
            user, session_id, before=before, limit=limit, message_uuid=message, later=later
        )

    def message(self, user: User, message_id: str) -> Message:
        return self.store.messages.get(user, message_id)

    def versions(self, user: User, message_id: str) -> list[Message]:
        return self.store.messages.versions(user, message_id)

    def tree(self, user: User, session_id: str) -> list[Message]:
        return self.store.messages.tree(user, session_id)

    def outline(self, user: User, session_id: str) -> list[OutlineMessage]:
        """Every message of the session with the start of its text only: what a picture of the tree needs."""
        return self.store.messages.outline(user, session_id)

    def follow_ups(self, user: User, session_id: str, message_ids: Sequence[str]) -> dict[str, int]:
        """How many messages each of these has below it on the branch that it leads to; counted up to a hundred."""
        return self.store.messages.follow_ups(user, session_id, message_ids)

    def log(self, user: User, message_id: str) -> list[LogEntry]:
        """The full record of a message, in order."""
        return self.store.runs.log(self.store.messages.get(user, message_id).id)

    def activities(self, user: User, session_id: str, message_ids: Sequence[str]) -> dict[str, Activity]:
        """What the activity lines of these messages show, by message id."""
        session = self.store.sessions.get(user, session_id)
        ids = self.store.messages.ids_of(session.id, message_ids)
        found = self.store.runs.activities(list(ids.values()))
        return {message_uuid: found[row_id] for message_uuid, row_id in ids.items()}

    def tool_result(self, user: User, result_ref: str) -> str:
        return self.store.runs.tool_result(user, result_ref)

    # -- acting --------------------------------------------------------------------------------------------------

    def ask(
        self,
        user: User,
        session_id: str,
        text: str,
        *,
        model_id: str | None = None,
        skill_folder: str | None = None,
        max_iterations: int | None = None,
        parent: str | None = None,
        branch: str | None = None,
    ) -> Started:
        """Append the user's message after the active branch (or after `parent`) and start a run for it.

        `branch` names any message of the branch to go on with, when that may be another than the active one.
        Refused as a whole (`SessionBusy`, `LimitReached`): then nothing is stored and the caller keeps the text.
        """
        content = checked_text(text)
        with self.store.database.write() as db:
            session = owned_session(db, user, session_id)
            if branch is not None:
                messages.activate_path(db, messages.message_of(db, user, session, branch))
            above = messages.leaf_of(db, session.id) if parent is None else _answer_above(db, user, session, parent)
            asked = messages.append(db, session.id, above, NewMessage("USER", content, "SENT"), utc_text(_now()))
            begun = self._begin(db, user, session, asked, model_id, skill_folder, max_iterations)
        return self._launch(begun)

    def run_message(
        self,
        user: User,
        message_id: str,
        *,
        model_id: str | None = None,
        skill_folder: str | None = None,
        max_iterations: int | None = None,
    ) -> Started:
        """Start a run for a USER message, for instance one that was edited."""
        with self.store.database.write() as db:
            asked = owned_message(db, user, message_id)
            if asked.role != "USER":
                raise InvalidInput("Only a message of the user can be run.")
            session = session_by_id(db, asked.session_id)
            begun = self._begin(db, user, session, asked, model_id, skill_folder, max_iterations)
        return self._launch(begun)

    def regenerate(
        self, user: User, message_id: str, *, model_id: str | None = None, skill_folder: str | None = None
    ) -> Started:
        """Answer the same question again in a new version; the old one stays, inactive.

        A model or skill holds for this answer only; without one the session's choice is used.
        """
        with self.store.database.write() as db:
            old = owned_message(db, user, message_id)
            if old.role != "ASSISTANT" or old.parent_id is None:
                raise InvalidInput("Only an answer can be regenerated.")
            session = session_by_id(db, old.session_id)
            session = replace(
                session,
                model_id=session.model_id if model_id is None else storable(model_id),
                skill_folder=session.skill_folder if skill_folder is None else storable(skill_folder),
            )
            asked = message_by_id(db, old.parent_id)
            begun = self._begin(db, user, session, asked, None, None, None)
        return self._launch(begun)

    def edit(self, user: User, message_id: str, content: str) -> Message:
        """Add a new version of a USER message and make it active; no run is started yet."""
        text = checked_text(content)
        with self.store.database.write() as db:
            return self._edit(db, user, message_id, text)

    def edit_and_run(
        self,
        user: User,
        message_id: str,
        content: str,
        *,
        model_id: str | None = None,
        skill_folder: str | None = None,
        max_iterations: int | None = None,
    ) -> Started:
        """Add a new version of a USER message and start a run for it, together or not at all."""
        text = checked_text(content)
        with self.store.database.write() as db:
            asked = self._edit(db, user, message_id, text)
            session = session_by_id(db, asked.session_id)
            begun = self._begin(db, user, session, asked, model_id, skill_folder, max_iterations)
        return self._launch(begun)

    def continue_run(self, user: User, message_id: str) -> Started:
        """Let the agent go on in a STOPPED or INTERRUPTED message, from the turn that was kept."""
        with self.store.database.write() as db:
            answer = owned_message(db, user, message_id)
            if answer.status not in ("STOPPED", "INTERRUPTED") or answer.parent_id is None:
                raise Conflict("Only a stopped or interrupted answer can be continued.")
            self.store.database.refuse_when_full()
            session = session_by_id(db, answer.session_id)
            asked = message_by_id(db, answer.parent_id)
            kept = partial_turn(db, asked, answer, session.runtime)
            contexts.put(db, answer.id, TurnContext(session.runtime, kept, _is_base(db, answer.id)))
            new = self._new_run(answer.model_id, answer.skill_folder, {"continued": True})
            run = self.store.runs.begin_again(db, user, session, answer, new)
            messages.activate_path(db, answer)
            answer = message_by_id(db, answer.id)
            first_text = self.store.messages.first_user_text(db, session.id)
        return self._launch(_Begun(run, session, asked, answer, CONTINUE_TEXT, first_text, None))

    def activate(self, user: User, message_id: str) -> None:
        """Show this version at its fork; all other forks keep what they show."""
        self.store.messages.activate(user, message_id)

    def activate_branch(self, user: User, message_id: str) -> None:
        """Make the branch that holds this message the active one."""
        self.store.messages.activate_branch(user, message_id)

    def stop(self, user: User, run_id: str) -> None:
        """Interrupt the run; harmless twice and after its end. What was done so far is kept."""
        try:
            run = self.store.runs.request_stop(user, run_id)
        except StoreUnavailable:
            # A full disk must not keep an agent from being stopped; only a restart would forget the wish.
            run = self.store.runs.get(user, run_id)
        fail_point("stop.requested")
        if run.is_active:
            self._pool.stop(run_id)

    def answer(self, user: User, run_id: str, question_id: str, answer: str) -> Question:
        """Answer a question of the agent: the first answer wins and is delivered even over a restart.

        Raises `AlreadyAnswered` (another answer was first), `QuestionClosed` (its run has ended), `NotFound`.
        """
        text = storable(answer)
        if len(text) > MAX_ANSWER_CHARS:
            raise TooLarge(f"The answer is longer than {MAX_ANSWER_CHARS} characters.", limit=MAX_ANSWER_CHARS)
        run = self.store.runs.get(user, run_id)
        with self.store.database.write() as db:
            asked = self.store.questions.get(db, run_id, question_id)
            check_answer(asked, text)
            question, first = self.store.questions.record_answer(db, user, run_id, question_id, text, _now())
            if first:
                kind: Literal["clarify_answer", "approval_decision"] = (
                    "clarify_answer" if question.kind == "clarify" else "approval_decision"
                )
                meta = {"question_id": question_id, "answered_by": user.key}
                insert_entries(db, run.message_id, [NewEntry(kind, text, meta=meta)], utc_text(_now()))
                fail_point("answer.between")
                refresh_waiting(db, run_id)
        fail_point("answer.recorded")
        if first:
            self._bus.publish(run_id)
        if not question.delivered:
            self._pool.deliver(question)
        return question

    # -- keeping -------------------------------------------------------------------------------------------------

    def backup(self, user: User) -> Path:
        """Write everything worth keeping into one private file under `backups` in the data folder; runs go on."""
        return back_up(self.settings, self.settings.data_dir / "backups", datetime.now())

    def old_records(self, user: User, days: int) -> OldRecords:
        """Tell what a retention of so many days (`PARLEY_LOG_RETENTION_DAYS`) would remove; changes nothing."""
        return self.store.housekeeping.old_records(_now(), days)

    # -- runs ----------------------------------------------------------------------------------------------------

    def run_state(self, user: User, run_id: str) -> RunState:
        return self._state(self.store.runs.get(user, run_id))

    def active_run(self, user: User, session_id: str) -> RunState | None:
        """The session's run that is at work or waits, if there is one."""
        session = self.store.sessions.get(user, session_id)
        run = self.store.runs.active_in(user, session.id)
        return None if run is None else self._state(run)

    def entries(self, user: User, run_id: str, after: int = 0, limit: int = 500) -> list[LogEntry]:
        """The run's own log entries after `after`, in order."""
        return self.store.runs.entries(self.store.runs.get(user, run_id), after, limit)

    def questions(self, user: User, run_id: str) -> list[Question]:
        return self.store.questions.list_for(self.store.runs.get(user, run_id).run_id)

    def first_seq(self, user: User, run_id: str) -> int:
        """The seq of the run's first log entry (a continued message holds several runs)."""
        return self.store.runs.get(user, run_id).first_seq

    def follow(self, user: User, run_id: str, after: int = 0) -> Iterator[LogEntry]:
        """Yield the run's entries after `after`, oldest first, until the run has ended or the workbench closes.

        Safe to leave and call again with the last seq seen: that is how every reader works.
        """
        run = self.store.runs.get(user, run_id)
        with self._bus.watch(run_id) as watch:
            while not self._closed.is_set():
                entries = self.store.runs.entries(run, after, 500)
                for entry in entries:
                    after = entry.seq_to or entry.seq
                    yield entry
                    if entry.is_terminal:
                        return
                if not entries and not watch.wait(FOLLOW_SECONDS):
                    # Deleted meanwhile: nothing will ever come.
                    self.store.runs.get(user, run_id)

    def subscribe(self, run_id: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` from any thread after each commit of the run's entries, until the result is called."""
        return self._bus.subscribe(run_id, wake)

    # -- the Bridge ----------------------------------------------------------------------------------------------

    def models(self, user: User) -> list[ModelChoice]:
        """What can be chosen; the last known list while the Bridge is away."""
        return self._choices.models()

    def skills(self, user: User) -> list[SkillChoice]:
        return self._choices.skills()

    def branch_memory(self, user: User, session_id: str) -> BranchMemory:
        """What the agent's next run of this session gets to remember, and its last tools and summaries."""
        with self.store.database.read() as db:
            return branch_memory(db, owned_session(db, user, session_id))

    def condensed_counts(self, user: User, summaries: Sequence[Message]) -> dict[str, int]:
        """How many messages each of these SUMMARY messages of the user stands for, by its id, where it is known."""
        with self.store.database.read() as db:
            return condensed_counts(db, [owned_message(db, user, message.uuid) for message in summaries])

    def memory(self, user: User, which: Literal["memory", "user"]) -> MemoryText:
        return self._bridge_client().memory(which)

    def write_memory(self, user: User, which: Literal["memory", "user"], text: str) -> MemoryText:
        return self._bridge_client().write_memory(which, storable(text))

    def bridge_health(self, user: User) -> Health:
        """What the Bridge says of itself now: toolsets in force, problems of its setup. Raises `BridgeUnavailable`."""
        return self._bridge_client().health()

    def bridge_state(self) -> BridgeState:
        return self._bridge.state() if self._bridge is not None else BridgeState("ready")

    def trouble(self) -> str | None:
        """A plain sentence while the log cannot be stored (disk full, database locked), else None."""
        return self._writer.trouble

    def health(self) -> dict[str, object]:
        state = self.bridge_state()
        well = state.status == "ready" and self.trouble() is None
        return {
            "status": "ok" if well else "degraded",
            "version": VERSION,
            "bridge": state.status,
            "active_runs": self.store.runs.count_active(),
        }

    # -- inside --------------------------------------------------------------------------------------------------

    def _begin(
        self,
        db: Any,
        user: User,
        session: Session,
        asked: Message,
        model_id: str | None,
        skill_folder: str | None,
        max_iterations: int | None,
    ) -> "_Begun":
        self.store.database.refuse_when_full()
        session = self.store.sessions.remember_choices(db, session, model_id, skill_folder)
        new = self._new_run(session.model_id, session.skill_folder, {"max_iterations": max_iterations})
        run, answer = self.store.runs.begin(db, user, session, asked, new)
        # Whoever starts a run wants to see it: its branch is the active one from now on.
        messages.activate_path(db, answer)
        fail_point("begin.before_commit")
        first_text = self.store.messages.first_user_text(db, session.id)
        return _Begun(run, session, asked, answer, asked.content, first_text, max_iterations)

    def _new_run(self, model_id: str, skill_folder: str, request: dict[str, Any]) -> NewRun:
        return NewRun(
            run_id=str(uuid.uuid4()),
            model_id=model_id,
            skill_folder=skill_folder,
            lease_owner=self._pool.owner,
            lease_until=self._pool.lease_until(),
            now=_now(),
            request=request,
            max_active_runs=self.settings.max_active_runs,
            max_runs_per_user=self.settings.max_runs_per_user,
        )

    def _launch(self, begun: "_Begun") -> Started:
        fail_point("begin.committed")
        run, session = begun.run, begun.session

        def request() -> RunRequest:
            continued = run.first_seq > 1
            with self.store.database.read() as db:
                above = begun.answer.id if continued else begun.asked.parent_id
                turns = turns_above(db, above, session.runtime)
            return RunRequest(
                run_id=run.run_id,
                agent_session=session.agent_session,
                runtime=session.runtime,
                model=begun.answer.model_id,
                skill_folder=begun.answer.skill_folder,
                message=begun.text,
                contexts=turns,
                max_iterations=begun.max_iterations,
            )

        self._pool.start(run, session.runtime, begun.first_text, request)
        return Started(run.run_id, begun.answer.uuid, begun.asked.uuid)

    def _edit(self, db: Any, user: User, message_id: str, text: str) -> Message:
        old = owned_message(db, user, message_id)
        if old.role != "USER":
            raise InvalidInput("Only a message of the user can be edited.")
        session = session_by_id(db, old.session_id)
        if self._active_in(db, session) is not None:
            raise SessionBusy("A run is at work in this session. Wait for it or stop it, then edit; your text is kept.")
        return messages.append(db, old.session_id, old.parent_id, NewMessage("USER", text, "SENT"), utc_text(_now()))

    def _active_in(self, db: Any, session: Session) -> object | None:
        found: object | None = db.execute(
            "SELECT 1 FROM run WHERE session_id = ? AND status IN ('RUNNING', 'WAITING')", (session.id,)
        ).fetchone()
        return found

    def _state(self, run: Run) -> RunState:
        session_uuid, message_uuid = self.store.runs.names(run)
        question = self.store.questions.open_in(run.run_id)
        last_seq = self.store.runs.last_seq(run.message_id)
        return RunState(run.run_id, session_uuid, message_uuid, run.status, run.stop_requested, last_seq, question)

    def _bridge_client(self) -> BridgeClient:
        if self._client is None:
            raise BridgeUnavailable("This workbench has no Bridge.")
        return self._client

    def _reconnecting(self, run_id: str, seconds: float) -> None:
        self._pool.reconnecting(run_id, seconds)

    def _purge(self, now: datetime) -> None:
        """Remove for good what was deleted and can no longer be brought back."""
        for gone in self.store.sessions.expired(now):
            if gone.run_id is not None:
                # Restored, run anew and deleted meanwhile, or the first stop found nobody: what it sends is refused.
                self._pool.stop(gone.run_id)
            self.store.sessions.purge(gone.session_id)
            fail_point("purge.done")
            with suppress(ParleyError):
                self._host.forget(gone.agent_session)

    def _keep_house(self, closing: threading.Event) -> None:
        housekeeping = self.store.housekeeping
        housekeeping.condense(_now(), closing)
        if self.settings.log_retention_days:
            housekeeping.remove_old_records(_now(), self.settings.log_retention_days, closing)
        housekeeping.give_space_back(closing)

    def _recover(self) -> None:
        def runtime_of(run: Run) -> tuple[str, str]:
            with self.store.database.read() as db:
                return session_by_id(db, run.session_id).runtime, self.store.messages.first_user_text(
                    db, run.session_id
                )

        def wait_until_ready() -> None:
            if self._bridge is not None:
                self._bridge.wait_until_ready(RECOVERY_SECONDS)

        recover(self.store, self._pool, self._host, runtime_of, wait_until_ready, self._closed)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A run that is stored and not yet launched; nothing more is read for it, so that nothing more can fail."""

    run: Run
    session: Session
    asked: Message
    answer: Message
    text: str
    first_text: str
    max_iterations: int | None


def open_workbench(settings: Settings, host: RunHost | None = None) -> Workbench:
    """Open the data folder and start working. `host` replaces the Bridge (tests).

    Raises `StoreUnavailable` with a plain sentence when the data folder cannot be used.
    """
    store = Store.open(settings.database_file)
    try:
        workbench = Workbench(settings, store, None if host is not None else bridge_for(settings), host)
    except BaseException:
        store.close()
        raise
    workbench.start()
    return workbench


def _answer_above(db: Any, user: User, session: Session, parent: str) -> int:
    message = messages.message_of(db, user, session, parent)
    if message.role != "ASSISTANT":
        raise InvalidInput("A new message follows an answer; to run a message of the user, send no text.")
    return message.id


def _is_base(db: Any, message_id: int) -> bool:
    context = contexts.get_many(db, [message_id]).get(message_id)
    return context is not None and context.base
