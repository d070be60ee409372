"""Runs the benchmarks one after the other, each in a process of its own: `python -m bench [NAME ...]`.

Each prints JSON lines. Exit code 1 when one of them failed; figures alone never fail it.
"""

import subprocess
import sys
from collections.abc import Sequence

NAMES = ("start", "first_text", "live_stream", "parallel_runs", "reconnects", "search", "long_session", "analytics")


def main(names: Sequence[str]) -> int:
    unknown = set(names) - set(NAMES)
    if unknown:
        print(f"There is no benchmark {', '.join(sorted(unknown))}. Choose from {', '.join(NAMES)}.", file=sys.stderr)
        return 2
    failed = [
        name
        for name in names or NAMES
        if subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False).returncode != 0
    ]
    if failed:
        print(f"Failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
