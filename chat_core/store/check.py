"""Finds everything in a store that cannot be right."""

from chat_core.store.database import Database
from chat_core.store.messages import leaf_below

_FINDINGS = {
    "message with a parent in another session": """
        SELECT m.id FROM chat_message m JOIN chat_message p ON p.id = m.parent_id WHERE p.session_id <> m.session_id
    """,
    "message without its session or parent": """
        SELECT m.id FROM chat_message m LEFT JOIN chat_session s ON s.id = m.session_id
        LEFT JOIN chat_message p ON p.id = m.parent_id
        WHERE s.id IS NULL OR (m.parent_id IS NOT NULL AND p.id IS NULL)
    """,
    "siblings without exactly one active": """
        SELECT min(id) FROM chat_message WHERE role <> 'SYSTEM' GROUP BY session_id, COALESCE(parent_id, 0)
        HAVING sum(is_active) <> 1
    """,
    "ASSISTANT message not under a USER message": """
        SELECT m.id FROM chat_message m LEFT JOIN chat_message p ON p.id = m.parent_id
        WHERE m.role = 'ASSISTANT' AND COALESCE(p.role, '') <> 'USER'
    """,
    "gap in the log": """
        SELECT message_id FROM (
            SELECT message_id, seq,
                   lag(COALESCE(seq_to, seq), 1, 0) OVER (PARTITION BY message_id ORDER BY seq) AS prior
            FROM chat_message_log) AS numbered
        WHERE seq <= prior OR (seq <> prior + 1 AND NOT EXISTS (
            SELECT 1 FROM run WHERE run.message_id = numbered.message_id AND compacting_at IS NOT NULL))
    """,
    "ended run without exactly one terminal entry": """
        SELECT r.run_id FROM run r LEFT JOIN chat_message_log l ON l.message_id = r.message_id
            AND l.kind IN ('run_finished', 'run_failed', 'run_stopped', 'run_interrupted')
            AND json_extract(l.meta_json, '$.run_id') = r.run_id
        GROUP BY r.run_id HAVING count(l.id) <> (r.status NOT IN ('RUNNING', 'WAITING'))
    """,
    "active run without a lease": """
        SELECT run_id FROM run WHERE status IN ('RUNNING', 'WAITING') AND (lease_owner = '' OR lease_until IS NULL)
    """,
    "running message without an active run": """
        SELECT m.id FROM chat_message m LEFT JOIN run r ON r.run_id = m.run_id
        WHERE m.status IN ('PENDING', 'RUNNING', 'WAITING') AND COALESCE(r.status, '') <> m.status
    """,
    "active run whose message is not running": """
        SELECT r.run_id FROM run r JOIN chat_message m ON m.id = r.message_id
        WHERE r.status IN ('RUNNING', 'WAITING') AND (m.status <> r.status OR m.run_id <> r.run_id)
    """,
    "open question of an ended run": """
        SELECT q.question_id FROM run_question q JOIN run r ON r.run_id = q.run_id
        WHERE q.status = 'WAITING' AND r.status <> 'WAITING'
    """,
    "waiting run without an open question": """
        SELECT r.run_id FROM run r WHERE r.status = 'WAITING'
        AND NOT EXISTS (SELECT 1 FROM run_question q WHERE q.run_id = r.run_id AND q.status = 'WAITING')
    """,
    "answered question without an answer": """
        SELECT question_id FROM run_question WHERE (status = 'ANSWERED') <> (answer IS NOT NULL)
    """,
    "deleted session that never goes": """
        SELECT id FROM chat_session WHERE deleted_at IS NOT NULL AND purge_at IS NULL
    """,
    "message that is older than its parent": "SELECT id FROM chat_message WHERE parent_id >= id",
    "message that search cannot find": """
        SELECT id FROM chat_message WHERE content <> '' AND id NOT IN (SELECT id FROM search_trigram_docsize)
    """,
    "searched message that is not there": """
        SELECT id FROM search_trigram_docsize WHERE id NOT IN (SELECT id FROM chat_message WHERE content <> '')
    """,
    "reference to a tool result that is not stored": """
        SELECT l.id FROM chat_message_log l WHERE l.kind = 'tool_result'
        AND json_extract(l.meta_json, '$.result_ref') IS NOT NULL
        AND json_extract(l.meta_json, '$.result_ref') NOT IN (SELECT result_ref FROM tool_result)
    """,
}


def check(database: Database) -> list[str]:
    """Return one line per inconsistency, empty when all is well."""
    findings: list[str] = []
    with database.read() as db:
        findings += [f"sqlite: {row[0]}" for row in db.execute("PRAGMA quick_check") if row[0] != "ok"]
        findings += [f"foreign key: {tuple(row)}" for row in db.execute("PRAGMA foreign_key_check")]
        for name, query in _FINDINGS.items():
            findings += [f"{name}: {row[0]}" for row in db.execute(query)]
        for row in db.execute("SELECT id, leaf_id FROM chat_session").fetchall():
            derived = leaf_below(db, row["id"], 0) or None
            if derived != row["leaf_id"]:
                findings.append(f"leaf of session {row['id']} is {row['leaf_id']}, the active branch ends at {derived}")
    return findings
