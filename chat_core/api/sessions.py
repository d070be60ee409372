"""Calls about sessions."""

from chat_core.api.endpoint import Call, Endpoint
from chat_core.api.wire import (
    BranchMessageView,
    MarkerCreated,
    MessageQuery,
    MessageWindow,
    ResetOptions,
    SearchHitView,
    SearchQuery,
    SearchResult,
    SessionChange,
    SessionCreated,
    SessionDraft,
    SessionList,
    SessionListItem,
    SessionMemory,
    SessionQuery,
    SessionView,
    SessionWithMessages,
    Tree,
    TreeMessage,
)
from chat_core.models import Branch, BranchMessage

_WINDOW = 500


def create_session(call: Call, body: SessionDraft) -> SessionCreated:
    """Create an empty session."""
    session = call.workbench.create_session(
        call.user, title=body.title, model_id=body.model_id, skill_folder=body.skill_folder, runtime=body.runtime
    )
    return SessionCreated(session_id=session.uuid)


def list_sessions(call: Call, query: SessionQuery) -> SessionList:
    """List sessions: pinned ones first, then by newest activity; `before` is the last session_id of the page before."""
    page = call.workbench.list_sessions(
        call.user, query=query.q, status=query.status, before=query.before, limit=query.limit
    )
    return SessionList(sessions=[SessionListItem.of_row(row) for row in page.rows], has_more=page.has_more)


def get_session(call: Call) -> SessionWithMessages:
    """Return a session and its whole active branch."""
    session_id = call.ids["session_id"]
    row = call.workbench.session_row(call.user, session_id)
    items: list[BranchMessage] = []
    branch = Branch([], has_more=True)
    while branch.has_more:
        before = items[0].message.uuid if items else None
        branch = call.workbench.branch(call.user, session_id, before=before, limit=_WINDOW)
        items = branch.messages + items
    return SessionWithMessages(session=SessionListItem.of_row(row), messages=[_with_log(call, item) for item in items])


def change_session(call: Call, body: SessionChange) -> SessionView:
    """Change the title, model, skill, pin or status of a session."""
    session = call.workbench.update_session(
        call.user,
        call.ids["session_id"],
        title=body.title,
        model_id=body.model_id,
        skill_folder=body.skill_folder,
        pinned=body.pinned,
        status=body.status,
    )
    return SessionView.of(session)


def delete_session(call: Call) -> None:
    """Stop the session's run and delete the session; for some seconds it can be restored."""
    call.workbench.delete_session(call.user, call.ids["session_id"])


def restore_session(call: Call) -> SessionView:
    """Bring back a session that was deleted a moment ago."""
    return SessionView.of(call.workbench.restore_session(call.user, call.ids["session_id"]))


def search(call: Call, query: SearchQuery) -> SearchResult:
    """Find titles and messages that hold a text, newest first."""
    page = call.workbench.search(call.user, query.q, limit=query.limit, before=query.before)
    return SearchResult(hits=[SearchHitView.of(hit) for hit in page.hits], next_before=page.next_before)


def reset_session(call: Call, body: ResetOptions) -> MarkerCreated:
    """Let the agent start fresh after a marker; the history stays visible."""
    marker = call.workbench.reset(call.user, call.ids["session_id"])
    return MarkerCreated(message_id=marker.uuid)


def mark_session_seen(call: Call) -> None:
    """Note that somebody has looked at the session."""
    session = call.workbench.get_session(call.user, call.ids["session_id"])
    call.workbench.mark_seen(call.user, session.uuid)


def list_messages(call: Call, query: MessageQuery) -> MessageWindow:
    """Return a window of the active branch, or of the branch that holds `message`, oldest first."""
    branch = call.workbench.branch(
        call.user, call.ids["session_id"], before=query.before, limit=query.limit, message=query.message
    )
    return MessageWindow(messages=[_with_log(call, item) for item in branch.messages], has_more=branch.has_more)


def get_tree(call: Call) -> Tree:
    """Return every message of the session, without logs."""
    messages = call.workbench.tree(call.user, call.ids["session_id"])
    uuids = {message.id: message.uuid for message in messages}
    return Tree(messages=[TreeMessage.of_tree(message, uuids.get(message.parent_id or 0)) for message in messages])


def get_session_memory(call: Call) -> SessionMemory:
    """Return what the agent's next run gets to remember, and the last tools and summaries of the active branch."""
    return SessionMemory.of(call.workbench.branch_memory(call.user, call.ids["session_id"]))


def _with_log(call: Call, item: BranchMessage) -> BranchMessageView:
    is_answer = item.message.role == "ASSISTANT"
    log = call.workbench.log(call.user, item.message.uuid) if is_answer else []
    return BranchMessageView.of_branch(item, log)


ENDPOINTS = (
    Endpoint("POST", "/sessions", create_session, status=201),
    Endpoint("GET", "/sessions", list_sessions),
    Endpoint("GET", "/sessions/{session_id}", get_session),
    Endpoint("PATCH", "/sessions/{session_id}", change_session),
    Endpoint("DELETE", "/sessions/{session_id}", delete_session, status=204),
    Endpoint("POST", "/sessions/{session_id}/restore", restore_session),
    Endpoint("POST", "/sessions/{session_id}/reset", reset_session, status=201, errors=(409,)),
    Endpoint("POST", "/sessions/{session_id}/seen", mark_session_seen, status=204),
    Endpoint("GET", "/sessions/{session_id}/messages", list_messages),
    Endpoint("GET", "/sessions/{session_id}/tree", get_tree),
    Endpoint("GET", "/sessions/{session_id}/memory", get_session_memory),
    Endpoint("GET", "/search", search),
)
