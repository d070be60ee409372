"""A data folder with sessions to look at, filled before the program starts: forks, tools, and a long conversation."""

from dataclasses import dataclass
from pathlib import Path

from chat_core.bridge.run_host import LocalRunHost
from chat_core.config import load_settings
from chat_core.models import LOCAL_USER, Session, Started
from chat_core.workbench import Workbench, open_workbench
from tests.support.runs import finish
from tests.support.runtimes import GatedRuntime, Step, answers, calls_tool, emits, thinks
from tests.support.stored import add_turns

LARGE_LINES = 20_000
HOSTILE = "<img src=x onerror=alert(1)> **not bold** \u202egnp"


@dataclass(frozen=True, slots=True)
class SeededTree:
    """What a test needs to know of the sessions: their ids and those of their messages."""

    forked: str
    """Two forks: the first answer has two versions, and so has the second question of the first version."""
    first_answers: tuple[str, str]
    second_questions: tuple[str, str]
    long: str
    long_messages: tuple[str, ...]
    found: str
    """A session with a long answer on a hidden branch that ends with 数据库修复."""
    found_answer: str


def seed_tree(data_dir: Path) -> SeededTree:
    runtime = GatedRuntime()
    runtime.release()
    host = LocalRunHost({"hermes": runtime})
    workbench = open_workbench(load_settings({"data_dir": data_dir}), host)
    try:
        return _seed(workbench, runtime)
    finally:
        host.close(5.0)
        workbench.close()


def _seed(workbench: Workbench, runtime: GatedRuntime) -> SeededTree:
    def ask(session: Session, text: str, *steps: Step) -> Started:
        runtime.steps = list(steps)
        return _done(workbench, workbench.ask(LOCAL_USER, session.uuid, text))

    def again(message_id: str, *steps: Step) -> str:
        runtime.steps = list(steps)
        return _done(workbench, workbench.regenerate(LOCAL_USER, message_id)).message_uuid

    forked = workbench.create_session(LOCAL_USER, title="Forked")
    large = "\n".join(f"line {number} of the large result" for number in range(LARGE_LINES))
    first = ask(
        forked,
        f"First question {HOSTILE}",
        thinks("Let me look."),
        calls_tool("read_file", path="notes.md", result=large),
        answers("First answer.\n\n```python\nprint('hello')\n```\n"),
        emits("usage", input_tokens=4100, output_tokens=20),
    )
    second = ask(forked, "Second question", answers("Second answer."))
    runtime.steps = [answers("Answer to the other wording.")]
    edited = _done(
        workbench, workbench.edit_and_run(LOCAL_USER, second.user_message_uuid, "Second question, other wording")
    )
    other = again(
        first.message_uuid, calls_tool("terminal", command="ls", is_error=True), answers("Other first answer.")
    )
    workbench.activate(LOCAL_USER, first.message_uuid)
    workbench.activate(LOCAL_USER, second.user_message_uuid)

    long = workbench.create_session(LOCAL_USER, title="Long")
    long_messages = add_turns(workbench, long, 1000)

    found = workbench.create_session(LOCAL_USER, title="Found")
    paragraphs = "\n\n".join(f"Paragraph {number} of a long answer." for number in range(80))
    hidden = ask(found, "Tell me much", answers(f"{paragraphs}\n\n最后：数据库修复完成。"))
    again(hidden.message_uuid, answers("Short."))
    return SeededTree(
        forked=forked.uuid,
        first_answers=(first.message_uuid, other),
        second_questions=(second.user_message_uuid, edited.user_message_uuid),
        long=long.uuid,
        long_messages=tuple(long_messages),
        found=found.uuid,
        found_answer=hidden.message_uuid,
    )


def _done(workbench: Workbench, started: Started) -> Started:
    finish(workbench, LOCAL_USER, started.run_id)
    return started
