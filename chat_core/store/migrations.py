"""The schema, as a list of migrations that is only ever appended to."""

from sqlite_utils import Database, Migrations

migrations = Migrations("parley")


@migrations()
def m001_sessions_messages_runs(db: Database) -> None:
    """The message tree, the log, runs with leases, questions and turn contexts."""
    _create(
        db,
        """
        CREATE TABLE chat_session (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            session_uuid TEXT NOT NULL UNIQUE,
            owner TEXT NOT NULL,
            project TEXT NOT NULL,
            title TEXT NOT NULL DEFAULT '',
            title_source TEXT NOT NULL DEFAULT 'auto' CHECK (title_source IN ('auto', 'user')),
            runtime TEXT NOT NULL,
            model_id TEXT NOT NULL DEFAULT '',
            skill_folder TEXT NOT NULL DEFAULT '',
            agent_session TEXT NOT NULL,
            status TEXT NOT NULL DEFAULT 'ACTIVE' CHECK (status IN ('ACTIVE', 'ARCHIVED')),
            pinned INTEGER NOT NULL DEFAULT 0,
            last_summarized_at TEXT,
            seen_at TEXT,
            last_ended_at TEXT,
            leaf_id INTEGER REFERENCES chat_message (id) ON DELETE SET NULL,
            created_at TEXT NOT NULL,
            last_message_at TEXT NOT NULL,
            updated_at TEXT NOT NULL
        )
        """,
        "CREATE INDEX chat_session_leaf ON chat_session (leaf_id)",
        "CREATE INDEX chat_session_list ON chat_session (owner, status, pinned DESC, last_message_at DESC, id DESC)",
        """
        CREATE TABLE chat_message (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            message_uuid TEXT NOT NULL UNIQUE,
            session_id INTEGER NOT NULL REFERENCES chat_session (id) ON DELETE CASCADE,
            parent_id INTEGER REFERENCES chat_message (id) ON DELETE CASCADE,
            is_active INTEGER NOT NULL DEFAULT 1,
            branch_order INTEGER NOT NULL,
            run_id TEXT,
            role TEXT NOT NULL CHECK (role IN ('USER', 'ASSISTANT', 'SYSTEM')),
            content TEXT NOT NULL DEFAULT '',
            status TEXT NOT NULL,
            runtime TEXT NOT NULL DEFAULT '',
            model_id TEXT NOT NULL DEFAULT '',
            skill_folder TEXT NOT NULL DEFAULT '',
            usage_json TEXT,
            error TEXT,
            attachment_id TEXT,
            created_at TEXT NOT NULL,
            completed_at TEXT,
            CHECK (
                (role = 'USER' AND status = 'SENT')
                OR (role = 'ASSISTANT'
                    AND status IN ('PENDING', 'RUNNING', 'WAITING', 'SUCCESS', 'FAILED', 'STOPPED', 'INTERRUPTED'))
                OR (role = 'SYSTEM' AND status IN ('SUMMARY', 'RESET'))
            )
        )
        """,
        # COALESCE because NULLs are distinct in a unique index and first messages have no parent.
        """
        CREATE UNIQUE INDEX chat_message_one_active
            ON chat_message (session_id, COALESCE(parent_id, 0)) WHERE is_active = 1 AND role <> 'SYSTEM'
        """,
        """
        CREATE UNIQUE INDEX chat_message_order
            ON chat_message (session_id, COALESCE(parent_id, 0), branch_order) WHERE role <> 'SYSTEM'
        """,
        "CREATE INDEX chat_message_parent ON chat_message (parent_id)",
        "CREATE INDEX chat_message_session ON chat_message (session_id, id)",
        """
        CREATE TABLE chat_message_log (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            message_id INTEGER NOT NULL REFERENCES chat_message (id) ON DELETE CASCADE,
            seq INTEGER NOT NULL,
            seq_to INTEGER,
            kind TEXT NOT NULL,
            content TEXT NOT NULL DEFAULT '',
            tool_name TEXT NOT NULL DEFAULT '',
            call_id TEXT NOT NULL DEFAULT '',
            duration_ms INTEGER,
            is_error INTEGER NOT NULL DEFAULT 0,
            meta_json TEXT,
            created_at TEXT NOT NULL,
            UNIQUE (message_id, seq)
        )
        """,
        # The activity lines count tools of many messages without touching their deltas.
        """
        CREATE INDEX chat_message_log_kind ON chat_message_log (message_id, kind, is_error)
            WHERE kind IN ('tool_call', 'tool_result', 'todo_update')
        """,
        """
        CREATE TABLE tool_result (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            result_ref TEXT NOT NULL UNIQUE,
            message_id INTEGER NOT NULL REFERENCES chat_message (id) ON DELETE CASCADE,
            call_id TEXT NOT NULL,
            body BLOB NOT NULL,
            bytes INTEGER NOT NULL,
            created_at TEXT NOT NULL
        )
        """,
        "CREATE INDEX tool_result_message ON tool_result (message_id)",
        """
        CREATE TABLE run (
            run_id TEXT PRIMARY KEY,
            message_id INTEGER NOT NULL REFERENCES chat_message (id) ON DELETE CASCADE,
            session_id INTEGER NOT NULL REFERENCES chat_session (id) ON DELETE CASCADE,
            owner TEXT NOT NULL,
            request_json TEXT NOT NULL,
            status TEXT NOT NULL
                CHECK (status IN ('RUNNING', 'WAITING', 'SUCCESS', 'FAILED', 'STOPPED', 'INTERRUPTED')),
            lease_owner TEXT NOT NULL DEFAULT '',
            lease_until TEXT,
            fence INTEGER NOT NULL DEFAULT 1,
            bridge_seq INTEGER NOT NULL DEFAULT 0,
            first_seq INTEGER NOT NULL DEFAULT 1,
            stop_requested INTEGER NOT NULL DEFAULT 0,
            started_at TEXT NOT NULL,
            ended_at TEXT,
            compacted_at TEXT
        )
        """,
        # One session has one active run, and that is the database's promise, not a check before an insert.
        "CREATE UNIQUE INDEX run_one_active ON run (session_id) WHERE status IN ('RUNNING', 'WAITING')",
        "CREATE INDEX run_active ON run (owner) WHERE status IN ('RUNNING', 'WAITING')",
        "CREATE INDEX run_message ON run (message_id)",
        "CREATE INDEX run_session ON run (session_id)",
        """
        CREATE TABLE run_question (
            question_id TEXT PRIMARY KEY,
            run_id TEXT NOT NULL REFERENCES run (run_id) ON DELETE CASCADE,
            kind TEXT NOT NULL CHECK (kind IN ('clarify', 'approval')),
            question TEXT NOT NULL,
            choices_json TEXT NOT NULL DEFAULT '[]',
            detail_json TEXT NOT NULL DEFAULT '{}',
            status TEXT NOT NULL DEFAULT 'WAITING' CHECK (status IN ('WAITING', 'ANSWERED', 'CLOSED')),
            answer TEXT,
            answered_by TEXT,
            asked_at TEXT NOT NULL,
            answered_at TEXT,
            delivered INTEGER NOT NULL DEFAULT 0
        )
        """,
        "CREATE INDEX run_question_run ON run_question (run_id)",
        """
        CREATE TABLE turn_context (
            message_id INTEGER PRIMARY KEY REFERENCES chat_message (id) ON DELETE CASCADE,
            runtime TEXT NOT NULL,
            messages_json BLOB NOT NULL,
            base INTEGER NOT NULL DEFAULT 0
        )
        """,
    )


@migrations()
def m002_undo_and_compaction(db: Database) -> None:
    """A deleted session can be brought back until `purge_at`; compacting a log goes in steps that may be cut off."""
    _create(
        db,
        "ALTER TABLE chat_session ADD COLUMN deleted_at TEXT",
        "ALTER TABLE chat_session ADD COLUMN purge_at TEXT",
        "DROP INDEX chat_session_list",
        """
        CREATE INDEX chat_session_list ON chat_session (owner, status, pinned DESC, last_message_at DESC, id DESC)
            WHERE deleted_at IS NULL
        """,
        "CREATE INDEX chat_session_deleted ON chat_session (purge_at) WHERE deleted_at IS NOT NULL",
        "ALTER TABLE run ADD COLUMN compacting_at TEXT",
        "ALTER TABLE run ADD COLUMN pruned_at TEXT",
        "CREATE INDEX run_not_compacted ON run (ended_at) WHERE ended_at IS NOT NULL AND compacted_at IS NULL",
        "CREATE INDEX run_not_pruned ON run (ended_at) WHERE ended_at IS NOT NULL AND pruned_at IS NULL",
    )


@migrations()
def m003_search(db: Database) -> None:
    """Two indexes of the messages' text. They keep no text, so a deletion names what it takes out."""
    _create(
        db,
        """
        CREATE VIRTUAL TABLE search_trigram
            USING fts5(text, content = '', detail = none, tokenize = 'trigram case_sensitive 1')
        """,
        """
        CREATE VIRTUAL TABLE search_pair
            USING fts5(text, content = '', detail = none, columnsize = 0, prefix = '1', tokenize = 'ascii')
        """,
        f"""
        CREATE TRIGGER search_insert AFTER INSERT ON chat_message BEGIN
            {_SEARCH_PUT}
        END
        """,
        f"""
        CREATE TRIGGER search_update AFTER UPDATE OF content ON chat_message WHEN old.content <> new.content BEGIN
            {_SEARCH_OUT}
            {_SEARCH_PUT}
        END
        """,
        f"""
        CREATE TRIGGER search_delete AFTER DELETE ON chat_message BEGIN
            {_SEARCH_OUT}
        END
        """,
        """
        INSERT INTO search_trigram (rowid, text)
            SELECT id, parley_fold(content) FROM chat_message WHERE content <> ''
        """,
        """
        INSERT INTO search_pair (rowid, text)
            SELECT id, parley_pairs(content) FROM chat_message WHERE content <> ''
        """,
    )


_SEARCH_PUT = """
            INSERT INTO search_trigram (rowid, text)
                SELECT new.id, parley_fold(new.content) WHERE new.content <> '';
            INSERT INTO search_pair (rowid, text)
                SELECT new.id, parley_pairs(new.content) WHERE new.content <> '';
"""
_SEARCH_OUT = """
            INSERT INTO search_trigram (search_trigram, rowid, text)
                SELECT 'delete', old.id, parley_fold(old.content) WHERE old.content <> '';
            INSERT INTO search_pair (search_pair, rowid, text)
                SELECT 'delete', old.id, parley_pairs(old.content) WHERE old.content <> '';
"""


def _create(db: Database, *statements: str) -> None:
    for statement in statements:
        db.execute(statement)
