"""Runs the local model in the Bridge's environment, for tests: `local_model_program.py <cache folder> <log file>`.

Prints `{base_url, api_key, model, pid}` and then, for each line of the standard input, does what it says:
`close`, or `url` (prints the same again; starts the model anew when it has died). Ends when the input ends.
"""

import json
import sys
from pathlib import Path

from chat_core.bridge.model_servers.local_model import LocalModel


def main() -> None:
    model = LocalModel(Path(sys.argv[1]), Path(sys.argv[2]))
    _do(model, "url")
    for line in sys.stdin:
        _do(model, line.strip())
    model.close()


def _do(model: LocalModel, command: str) -> None:
    if command == "close":
        model.close()
        answer: dict[str, object] = {"pid": model.pid}
    else:
        try:
            url = model.base_url()
            answer = {"base_url": url, "api_key": model.api_key, "model": model.model_name, "pid": model.pid}
        except RuntimeError as error:
            answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
