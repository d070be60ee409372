"""Turn contexts: the agent's own message lists, compressed."""

import json
import sqlite3
import zlib
from collections.abc import Sequence

from chat_core.models import TurnContext


def put(db: sqlite3.Connection, message_id: int, context: TurnContext) -> None:
    """Store the context of a message, replacing an older one (a continued message has one context)."""
    body = zlib.compress(json.dumps(context.messages, ensure_ascii=True, separators=(",", ":")).encode("ascii"))
    db.execute(
        """
        INSERT INTO turn_context (message_id, runtime, messages_json, base) VALUES (?, ?, ?, ?)
        ON CONFLICT (message_id) DO UPDATE SET runtime = excluded.runtime, messages_json = excluded.messages_json,
                                               base = excluded.base
        """,
        (message_id, context.runtime, body, int(context.base)),
    )


def put_after(db: sqlite3.Connection, message_id: int, context: TurnContext) -> None:
    """Store what a run added: after what a stopped or interrupted run of the same message had left."""
    kept = get_many(db, [message_id]).get(message_id)
    if kept is not None and kept.runtime == context.runtime and not context.base:
        context = TurnContext(context.runtime, kept.messages + context.messages, kept.base)
    put(db, message_id, context)


def get_many(db: sqlite3.Connection, message_ids: Sequence[int]) -> dict[int, TurnContext]:
    """The contexts that exist for these messages."""
    rows = db.execute(
        """
        SELECT message_id, runtime, messages_json, base FROM turn_context
        WHERE message_id IN (SELECT value FROM json_each(?))
        """,
        (str(list(message_ids)),),
    )
    return {
        row["message_id"]: TurnContext(
            row["runtime"], json.loads(zlib.decompress(row["messages_json"])), bool(row["base"])
        )
        for row in rows
    }
