"""The store: one opened database and its parts."""

from pathlib import Path

from chat_core.store.check import check
from chat_core.store.database import Database
from chat_core.store.housekeeping import Housekeeping
from chat_core.store.messages import Messages
from chat_core.store.questions import Questions
from chat_core.store.runs import Runs
from chat_core.store.search import Search
from chat_core.store.sessions import Sessions
from chat_core.store.transfer import Transfer


class Store:
    """Everything that happened, in one SQLite file. Nothing else writes to it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.sessions = Sessions(database)
        self.messages = Messages(database)
        self.runs = Runs(database)
        self.questions = Questions(database)
        self.search = Search(database)
        self.housekeeping = Housekeeping(database)
        self.transfer = Transfer(database)

    @classmethod
    def open(cls, file: Path) -> "Store":
        """Raises `StoreUnavailable` with a plain sentence; nothing is changed then."""
        return cls(Database.open(file))

    def check(self) -> list[str]:
        """Return one line per inconsistency, empty when all is well."""
        return check(self.database)

    def close(self) -> None:
        self.database.close()
