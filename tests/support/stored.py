"""Sessions and messages put into the store without a run."""

from chat_core.models import SearchHit, Session, User, utc_text
from chat_core.store import messages
from chat_core.store.messages import NewMessage
from chat_core.workbench import Workbench


def add_session(workbench: Workbench, user: User, title: str = "") -> Session:
    return workbench.create_session(user, title=title, runtime="echo")


def add_message(workbench: Workbench, session: Session, content: str) -> str:
    """Append a USER message at the end of the session's branch; returns its public id."""
    with workbench.store.database.write() as db:
        leaf = messages.leaf_of(db, session.id)
        at = utc_text(session.created_at)
        return messages.append(db, session.id, leaf, NewMessage("USER", content, "SENT"), at).uuid


def add_turns(workbench: Workbench, session: Session, turns: int, at: int | None = None) -> list[str]:
    """Append questions and finished answers under the message with row id `at` (the end of the branch when None).

    Returns the public ids in order: question, answer, question, ...
    """
    ids = []
    with workbench.store.database.write() as db:
        above = messages.leaf_of(db, session.id) if at is None else at
        moment = utc_text(session.created_at)
        for number in range(turns):
            asked = NewMessage("USER", f"Question {number} of {session.uuid[:4]}?", "SENT")
            question = messages.append(db, session.id, above, asked, moment)
            answered = NewMessage("ASSISTANT", f"Answer {number}.", "SUCCESS", session.runtime, "scripted")
            answer = messages.append(db, session.id, question.id, answered, moment)
            above = answer.id
            ids += [question.uuid, answer.uuid]
    return ids


def all_hits(workbench: Workbench, user: User, query: str) -> list[SearchHit]:
    """Every message hit of a search, over all pages."""
    hits: list[SearchHit] = []
    before = None
    while True:
        page = workbench.search(user, query, before=before, limit=50)
        hits += page.hits
        before = page.next_before
        if before is None:
            return [hit for hit in hits if hit.message_uuid is not None]
