"""Random sessions for property tests: trees with forks, logs, questions, large results and hostile text."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from chat_core.models import utc_text

HOSTILE = [
    "",
    "plain",
    "```\nopen fence",
    "````\n```\ninner\n```\n````",
    "~~~~\n```\n~~~",
    "back\\",
    "<script>alert(1)</script>",
    "<div>\n\n# not ours\n",
    "![x](http://evil.example/x.png)",
    "[x](javascript:alert(1))",
    "[ref]: http://evil.example\n\n[ref]",
    "> quote\n> - list\n>   ```\n>   code",
    "| a | b |\n|---|---|\n| `|` | <b> |",
    "    indented code\n\n- list\n\n  more",
    "title\n=====\n\n---\n\n1. one\n2. two",
    "<!-- comment",
    "&amp; &lt; \\< \\\\ `<b>` ``a`b``",
    "\u202eabc\u2028def\x1b[31m",
    "修复 \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "x" * 3000,
    "- a\n\n\n- b\n* c\n+ d",
    "<http://a.example> <a@b.example> http://c.example",
    "a\r\nb\rc\td",
    "$x$ ||| ~~no~~ **bold *nested***",
]
MARKDOWN_ALPHABET = "ab \n\t`~#*_[]()<>!|-+=\\&;:.0123456789\"'/{}$^"

hostile_texts = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(alphabet=MARKDOWN_ALPHABET, max_size=60),
    st.lists(st.sampled_from(HOSTILE), max_size=3).map("\n".join),
    st.text(max_size=30),
)


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\x00", "?")


texts = hostile_texts.map(_storable)
json_leaves = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
)
json_values = st.recursive(
    json_leaves | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner),
    max_leaves=4,
)
_START = datetime(2026, 1, 1, tzinfo=UTC)


def _time(seconds: float) -> str:
    return utc_text(_START + timedelta(seconds=seconds))


class _Builder:
    """Draws one session, numbering everything as it goes."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.clock = 0.0
        self.count = 0
        self.messages: list[dict[str, Any]] = []

    def now(self) -> str:
        self.clock += self.draw(st.sampled_from([0.0, 0.001, 1.5, 3600.0]))
        return _time(self.clock)

    def new_id(self, kind: str) -> str:
        self.count += 1
        return f"{kind}-{self.count}"

    def session(self) -> dict[str, Any]:
        self.level(None, depth=0)
        return {
            "format": "parley-session",
            "version": 1,
            "session": {
                "session_id": self.new_id("session"),
                "title": self.draw(texts)[:200],
                "title_source": self.draw(st.sampled_from(["auto", "user"])),
                "status": self.draw(st.sampled_from(["ACTIVE", "ARCHIVED"])),
                "pinned": self.draw(st.booleans()),
                "created_at": _time(0),
                "last_message_at": self.now(),
                "updated_at": self.now(),
                "last_summarized_at": self.draw(st.none() | st.just(_time(5))),
            },
            "messages": self.messages,
        }

    def level(self, parent: dict[str, Any] | None, depth: int) -> None:
        """Add the versions below `parent` and everything below them."""
        role = "ASSISTANT" if parent is not None and parent["role"] == "USER" else "USER"
        count = self.draw(st.integers(1 if depth == 0 else 0, 3 if depth < 3 else 1)) if depth < 5 else 0
        if count == 0:
            return
        active = self.draw(st.integers(1, count))
        versions = [self.message(parent, role, order, order == active) for order in range(1, count + 1)]
        for version in versions:
            if version["role"] == "ASSISTANT" and self.draw(st.integers(0, 4)) == 0:
                self.system(version)
            self.level(version, depth + 1)

    def message(self, parent: dict[str, Any] | None, role: str, order: int, active: bool) -> dict[str, Any]:
        message: dict[str, Any] = {
            "message_id": self.new_id("message"),
            "parent_id": parent["message_id"] if parent else None,
            "role": role,
            "content": self.draw(texts),
            "status": "SENT",
            "is_active": active,
            "branch_order": order,
            "created_at": self.now(),
            "completed_at": self.now(),
        }
        if role == "ASSISTANT":
            self.work(message)
        self.messages.append(message)
        return message

    def system(self, parent: dict[str, Any]) -> None:
        status = self.draw(st.sampled_from(["SUMMARY", "RESET"]))
        self.messages.append(
            {
                "message_id": self.new_id("message"),
                "parent_id": parent["message_id"],
                "role": "SYSTEM",
                "content": self.draw(texts) if status == "SUMMARY" else "",
                "status": status,
                "created_at": self.now(),
            }
        )

    def work(self, message: dict[str, Any]) -> None:
        message |= {"model_id": self.draw(texts)[:50], "usage": self.draw(st.none() | st.just({"input_tokens": 3}))}
        log: list[dict[str, Any]] = []
        message |= {"log": log, "runs": [], "results": []}
        for _ in range(self.draw(st.integers(1, 2))):
            status = self.run(message, log)
        message["status"] = status
        if status != "SUCCESS":
            message["error"] = {"code": "internal", "message": self.draw(texts)}
        if self.draw(st.booleans()):
            message["context"] = {
                "runtime": "hermes",
                "messages": [{"role": "user", "content": self.draw(json_values)}],
                "base": self.draw(st.booleans()),
            }

    def run(self, message: dict[str, Any], log: list[dict[str, Any]]) -> str:
        run_id = message["run_id"] = self.new_id("run")
        first_seq = len(log) + 1
        questions: list[dict[str, Any]] = []
        self.entry(log, "run_started", meta={"run_id": run_id})
        for _ in range(self.draw(st.integers(0, 3))):
            match self.draw(st.sampled_from(["text", "tool", "large", "question"])):
                case "text":
                    kind = self.draw(st.sampled_from(["thinking", "answer", "answer_break", "status", "todo_update"]))
                    self.entry(log, kind, content=self.draw(texts))
                case "question":
                    questions.append(self.question(log))
                case size:
                    self.tool(message, log, large=size == "large")
        status: str = self.draw(st.sampled_from(["SUCCESS", "FAILED", "STOPPED", "INTERRUPTED"]))
        ends = {"SUCCESS": "finished", "FAILED": "failed", "STOPPED": "stopped", "INTERRUPTED": "interrupted"}
        self.entry(log, f"run_{ends[status]}", content="end", meta={"run_id": run_id, "status": status})
        message["runs"].append(
            {
                "run_id": run_id,
                "status": status,
                "first_seq": first_seq,
                "request": {"max_iterations": None},
                "started_at": self.now(),
                "ended_at": self.now(),
                "questions": questions,
            }
        )
        return status

    def tool(self, message: dict[str, Any], log: list[dict[str, Any]], large: bool) -> None:
        call_id, name = self.new_id("call"), self.draw(texts)[:40]
        self.entry(log, "tool_call", content=self.draw(texts), tool_name=name, call_id=call_id)
        if self.draw(st.integers(0, 4)) == 0:
            return
        meta: dict[str, Any] = {}
        if large:
            ref = meta["result_ref"] = self.new_id("result")
            result = {"result_ref": ref, "call_id": call_id, "text": self.draw(texts) * 2, "at": self.now()}
            message["results"].append(result)
        self.entry(
            log,
            "tool_result",
            content=self.draw(texts),
            tool_name=name,
            call_id=call_id,
            duration_ms=self.draw(st.integers(0, 10_000)),
            is_error=self.draw(st.booleans()),
            meta=meta,
        )

    def question(self, log: list[dict[str, Any]]) -> dict[str, Any]:
        question_id, text = self.new_id("question"), self.draw(texts)
        self.entry(log, "clarify_request", content=text, meta={"question_id": question_id, "choices": ["a", "b"]})
        answer = self.draw(st.none() | texts)
        return {
            "question_id": question_id,
            "kind": self.draw(st.sampled_from(["clarify", "approval"])),
            "question": text,
            "choices": ["a", "b"],
            "detail": {"x": self.draw(json_values)},
            "status": "CLOSED" if answer is None else "ANSWERED",
            "answer": answer,
            "asked_at": self.now(),
            "answered_at": None if answer is None else self.now(),
        }

    def entry(self, log: list[dict[str, Any]], kind: str, **fields: Any) -> None:
        log.append({"seq": len(log) + 1, "kind": kind, "at": self.now(), **fields})


@st.composite
def session_files(draw: Any) -> dict[str, Any]:
    """The JSON value of an export file."""
    return _Builder(draw).session()
