"""Tells what a retention of so many days would remove: `python -m chat_core.retention --days 180`. Changes nothing."""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from chat_core.config import load_settings
from chat_core.errors import NotFound, ParleyError
from chat_core.store.database import Database
from chat_core.store.housekeeping import Housekeeping, OldRecords


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="chat_core.retention", description=__doc__)
    parser.add_argument("--days", type=int, required=True, help="records of runs that ended longer ago would go")
    wanted = parser.parse_args(arguments)
    try:
        settings = load_settings()
        if not settings.database_file.exists():
            raise NotFound(f"There is nothing to look at: {settings.data_dir} holds no database.")
        with Database.reading(settings.database_file) as database:
            old = Housekeeping(database).old_records(datetime.now(UTC), wanted.days)
    except ParleyError as problem:
        print(problem.message, file=sys.stderr)
        return 1
    print(_sentence(old, wanted.days, settings.log_retention_days))
    return 0


def _sentence(old: OldRecords, days: int, set_days: int) -> str:
    megabytes = (old.text_bytes + old.tool_result_bytes) / 1e6
    now = f"set to {set_days} days" if set_days else "off"
    return (
        f"With PARLEY_LOG_RETENTION_DAYS={days} the records of {old.runs:,} runs would go: {old.entries:,} entries and "
        f"{old.tool_results:,} large tool results, {megabytes:,.1f} MB. Messages and answers stay. "
        f"Nothing was changed; retention is {now}."
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
