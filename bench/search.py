"""How fast the list and the search answer over 10,000 sessions with 200,000 messages."""

import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from chat_core.models import LOCAL_USER, utc_text
from chat_core.store.store import Store

SESSIONS = 10_000
MESSAGES = 200_000
RARE = "qqzxneedle 稀有"
_TRIES = 5


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "parley.db")
        common_han = _fill(store)
        queries = {
            "word_in_one": "needle",
            "han_pair_in_one": "稀有",
            "han_single_in_one": "稀",
            "han_single_in_many": common_han,
            "latin_in_many": "the",
            "in_none": "zzzzzz",
            "latin_pair_in_one": "qq",
        }
        for name, query in queries.items():
            _print(f"search_{name}", lambda query=query: _hits(store, query))
            _print(f"list_with_{name}", lambda query=query: _rows(store, query))
        _print("list_first_page", lambda: _rows(store, ""))
        store.close()


def _hits(store: Store, query: str) -> int:
    return len(store.search.search(LOCAL_USER, query, before=None, limit=20).hits)


def _rows(store: Store, query: str) -> int:
    return len(store.sessions.list_for(LOCAL_USER, status="ACTIVE", query=query, before=None, limit=30).rows)


def _print(name: str, work: Callable[[], int]) -> None:
    times = []
    for _ in range(_TRIES):
        started = time.perf_counter()
        found = work()
        times.append(time.perf_counter() - started)
    print(json.dumps({"bench": name, "found": found, "median_ms": round(sorted(times)[_TRIES // 2] * 1000, 1)}))


def _fill(store: Store) -> str:
    """Put the sessions and messages in; return a Chinese character that is in many of them."""
    dice = random.Random(3)
    words = ["".join(dice.choices("etaoinshrdlucmfwypvbgk", k=dice.randint(2, 9))) for _ in range(20_000)]
    han = [chr(dice.randint(0x4E00, 0x4E00 + 3000)) for _ in range(3000)]
    at = utc_text(datetime.now(UTC))

    def messages() -> Iterator[tuple[object, ...]]:
        for number in range(MESSAGES):
            content = "".join(dice.choices(han, k=120)) if number % 5 == 0 else " ".join(dice.choices(words, k=40))
            if number == 50:
                content += RARE
            is_last = number + SESSIONS >= MESSAGES
            yield (f"m{number}", number % SESSIONS + 1, is_last, number // SESSIONS + 1, content, at)

    with store.database.write() as db:
        db.executemany(
            """
            INSERT INTO chat_session (session_uuid, owner, project, title, runtime, agent_session, created_at,
                                      last_message_at, updated_at)
            VALUES (?, 'local', 'default', ?, 'hermes', 'x', ?, ?, ?)
            """,
            ((f"s{number}", " ".join(dice.choices(words, k=4)), at, at, at) for number in range(SESSIONS)),
        )
        db.executemany(
            """
            INSERT INTO chat_message (message_uuid, session_id, is_active, branch_order, role, content, status,
                                      created_at)
            VALUES (?, ?, ?, ?, 'USER', ?, 'SENT', ?)
            """,
            messages(),
        )
    return han[5]


if __name__ == "__main__":
    main()
