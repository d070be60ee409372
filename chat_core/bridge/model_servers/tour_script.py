"""What the scripted model of the guided tour says and does: one reply for each step of a turn.

A step is chosen from the messages alone, so the tour works in any number of sessions, as a second turn, after a
stop, and after a regeneration: it starts over with each new message of the user.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Message = dict[str, Any]

SCRATCH = "tour-scratch"
MEMORY_NOTE = "Guided tour: a passing note, removed again at once."
_CJK = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
_SYNTHETIC = ("[System:", "[IMPORTANT: Background process", "[Your active task list was preserved")
_MARKUP = re.compile(r"[\\`*_{}\[\]<>#|~$]")
_QUOTED_CHARS = 200


@dataclass(frozen=True, slots=True)
class ToolCall:
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the scripted model: thoughts, then text, then tool calls (none: the turn ends)."""

    thinking: str = ""
    text: str = ""
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class _Turn:
    """What has happened since the user's last message."""

    user_text: str
    steps: int
    results: dict[str, list[str]]


def next_reply(messages: Sequence[Message]) -> Reply:
    """Return the next reply of the tour for this conversation (OpenAI chat messages)."""
    turn = _read(messages)
    words = _CHINESE if _CJK.search(turn.user_text) else _ENGLISH
    steps = (
        _plan,
        _list_skills,
        _read_skill,
        _note,
        _make_folder,
        _ask,
        _use_answer,
        _clean_up,
        _tick_off,
    )
    return steps[turn.steps](turn, words) if turn.steps < len(steps) else _report(turn, words)


def _read(messages: Sequence[Message]) -> _Turn:
    start = max((number for number, message in enumerate(messages) if _is_question(message)), default=-1)
    names: dict[str, str] = {}
    results: dict[str, list[str]] = {}
    steps = 0
    for message in messages[start + 1 :]:
        calls = message.get("tool_calls") or []
        steps += bool(calls)
        names |= {call["id"]: call["function"]["name"] for call in calls}
        if message.get("role") == "tool":
            name = names.get(str(message.get("tool_call_id")), "")
            results.setdefault(name, []).append(_text(message))
    return _Turn(_text(messages[start]) if start >= 0 else "", steps, results)


def _is_question(message: Message) -> bool:
    return message.get("role") == "user" and not _text(message).startswith(_SYNTHETIC)


def _text(message: Message) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))


# -- the steps ---------------------------------------------------------------------------------------------------


def _plan(turn: _Turn, words: dict[str, Any]) -> Reply:
    quoted = _quoted(turn.user_text)
    return Reply(
        words["think_plan"], words["intro"].format(text=quoted), (ToolCall("todo", {"todos": _todos(words, 0)}),)
    )


def _list_skills(turn: _Turn, words: dict[str, Any]) -> Reply:
    return Reply(words["think_skills"], "", (ToolCall("skills_list", {}),))


def _read_skill(turn: _Turn, words: dict[str, Any]) -> Reply:
    names = [str(skill.get("name", "")) for skill in _last_json(turn, "skills_list").get("skills") or []]
    name = "explain-simply" if "explain-simply" in names or not names else names[0]
    return Reply(
        "", words["found_skills"].format(count=len(names), name=name), (ToolCall("skill_view", {"name": name}),)
    )


def _note(turn: _Turn, words: dict[str, Any]) -> Reply:
    there_and_gone = {
        "target": "memory",
        "operations": [
            {"action": "add", "content": MEMORY_NOTE},
            {"action": "remove", "old_text": MEMORY_NOTE},
        ],
    }
    return Reply(words["think_memory"], "", (_progress(words, 1), ToolCall("memory", there_and_gone)))


def _make_folder(turn: _Turn, words: dict[str, Any]) -> Reply:
    command = f"mkdir -p {SCRATCH} && printf 'made by the guided tour\\n' > {SCRATCH}/note.txt && ls -l {SCRATCH}"
    return Reply(
        words["think_terminal"],
        words["remark_terminal"],
        (_progress(words, 2), ToolCall("terminal", {"command": command})),
    )


def _ask(turn: _Turn, words: dict[str, Any]) -> Reply:
    question = ToolCall("clarify", {"question": words["question"], "choices": words["choices"]})
    return Reply(words["think_ask"], "", (_progress(words, 3), question))


def _use_answer(turn: _Turn, words: dict[str, Any]) -> Reply:
    key = "think_choice" if _choice(turn, words) is not None else "think_free_text"
    return Reply(words[key].format(answer=_answer(turn)), "", (_progress(words, 4),))


def _clean_up(turn: _Turn, words: dict[str, Any]) -> Reply:
    return Reply("", words["remark_delete"], (ToolCall("terminal", {"command": f"rm -rf {SCRATCH}"}),))


def _tick_off(turn: _Turn, words: dict[str, Any]) -> Reply:
    todos = _todos(words, len(words["todos"]))
    if _outcome(turn) != "deleted":
        todos[-1]["status"] = "cancelled"
    return Reply("", "", (ToolCall("todo", {"todos": todos}),))


def _report(turn: _Turn, words: dict[str, Any]) -> Reply:
    outcome = _outcome(turn)
    choice = _choice(turn, words)
    extra = words["extra_free_text"] if choice is None else words["extras"][choice]
    text = words["report"].format(
        answer=_quoted(_answer(turn)) or "–", outcome=words[outcome], extra=extra, folder=SCRATCH
    )
    return Reply(words[f"think_{outcome}"], text)


def _todos(words: dict[str, Any], done: int) -> list[dict[str, str]]:
    def status(number: int) -> str:
        return "completed" if number < done else "in_progress" if number == done else "pending"

    return [
        {"id": str(number + 1), "content": text, "status": status(number)} for number, text in enumerate(words["todos"])
    ]


def _progress(words: dict[str, Any], done: int) -> ToolCall:
    return ToolCall("todo", {"todos": _todos(words, done)})


def _answer(turn: _Turn) -> str:
    return str(_last_json(turn, "clarify").get("user_response") or "")


def _choice(turn: _Turn, words: dict[str, Any]) -> int | None:
    """Return which of the offered answers was chosen; None when the person wrote one of their own."""
    answer = _answer(turn).strip()
    return words["choices"].index(answer) if answer in words["choices"] else None


def _outcome(turn: _Turn) -> Literal["deleted", "denied", "failed"]:
    """Tell what became of the deletion, which is the turn's last command."""
    result = _last_json(turn, "terminal")
    if result.get("exit_code") == 0 and not result.get("error"):
        return "deleted"
    return "denied" if result.get("status") == "blocked" else "failed"


def _quoted(text: str) -> str:
    """Return somebody's text on one line, safe inside Markdown."""
    line = " ".join(text.split())
    cut = line if len(line) <= _QUOTED_CHARS else line[: _QUOTED_CHARS - 1] + "…"
    return _MARKUP.sub(r"\\\g<0>", cut)


def _last_json(turn: _Turn, name: str) -> dict[str, Any]:
    results = turn.results.get(name) or ["{}"]
    try:
        value = json.loads(results[-1])
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


# -- the words ---------------------------------------------------------------------------------------------------

_ENGLISH: dict[str, Any] = {
    "think_plan": (
        "The guided tour starts. My sentences are written in advance, but the agent that runs me is the real one, "
        "and so are its tools. I should make a plan first, so that the reader can follow along. "
        "Five steps are enough: skills, memory, the terminal, a question, and cleaning up."
    ),
    "intro": (
        "This is the guided tour: **my words are scripted**, the agent and its tools are real. "
        "You wrote “{text}” – I note it and show you around. First a plan."
    ),
    "todos": [
        "Look at the skills",
        "Leave a note in memory and take it back",
        "Make a scratch folder in the terminal",
        "Ask you something",
        "Clean up, with your permission",
    ],
    "think_skills": (
        "The plan stands. Now the skills: short instructions for recurring work that I can read when needed."
    ),
    "found_skills": "There are {count} skills here. I open `{name}` as an example.",
    "think_memory": (
        "The skill is clear. Next the memory: what I keep there is known in every later conversation. "
        "This note is only for show, so I remove it in the same call."
    ),
    "think_terminal": (
        "Now the terminal. A new folder with one small file is harmless, so nobody needs to be asked. "
        "It is made in the working folder of this conversation."
    ),
    "remark_terminal": "Next a real command, in this conversation's own folder.",
    "question": "How should the report of this tour look?",
    "choices": ["Short and factual", "With an example", "As for a beginner"],
    "think_ask": "I could go on by myself, but the report is for the reader. Better to ask than to guess.",
    "think_choice": (
        "The answer is: {answer}. I will write the report that way. Before that the scratch folder should go. "
        "Deleting files is risky, so this command waits until somebody allows it."
    ),
    "think_free_text": (
        "The answer is in the person's own words: {answer}. My sentences are fixed, so I can only repeat it in the "
        "report. Before that the scratch folder should go. Deleting files is risky, so this command waits until "
        "somebody allows it."
    ),
    "remark_delete": (
        "Now I delete the scratch folder. **This needs your permission**: allow it or deny it, both are fine."
    ),
    "think_deleted": "Everything is done. I sum it up in a table, with an example of the code view below.",
    "think_denied": "The deletion was denied, so I leave the folder alone. The rest is done; I sum it up in a table.",
    "think_failed": "The deletion did not work, and I say so. The rest is done; I sum it up in a table.",
    "deleted": "It is deleted, as you allowed",
    "denied": "It is **still there**, because you did not allow its deletion",
    "failed": "It may **still be there**: the command that deletes it did not succeed",
    "extras": [
        "",
        """
**An example.** Ask a real model to *compare three bicycles for the way to work*. It makes a list of what matters,
asks what you can spend, looks things up with its tools, ticks off its list and answers with a table.
""",
        """
**In plain words.** An *agent* is a program that works on a task in several steps. A *model* writes its words. A
*tool* is something it can do besides writing. A *skill* is a page of instructions it reads first. It asks for
*permission* before it does something that cannot be undone.
""",
    ],
    "extra_free_text": """
**Your own words** reached me, as you can see above. A scripted model cannot follow them; a real one would.
""",
    "report": """*Guided tour: the words are scripted, the agent and its tools are real.*

## What you have just seen

You answered: **{answer}**. A scratch folder `{folder}` was made. {outcome}.
{extra}

| Step | Tool | What it was for |
|---|---|---|
| Plan | `todo` | a list that is ticked off while the agent works |
| Skills | `skills_list`, `skill_view` | instructions the agent reads when it needs them |
| Memory | `memory` | notes that later conversations know |
| Command | `terminal` | real work in the folder of this conversation |
| Question | `clarify` | the agent waits for you, for hours if need be |
| Permission | `terminal` | nothing risky runs unasked |

The harmless command was:

```bash
mkdir -p {folder}
printf 'made by the guided tour\\n' > {folder}/note.txt
ls -l {folder}
```

What to try next:

- Open the line above this answer: it holds every thought, call and result.
- *Edit* your message or *Regenerate* this answer: both versions stay.
- Close this tab while an agent works, and come back: nothing is lost.
- Add a model of your own; the start page says where.
""",
}

_CHINESE: dict[str, Any] = {
    "think_plan": (
        "导览开始。我说的话是事先写好的，但运行我的代理是真实的，它的工具也是真实的。"
        "先列一个计划，方便读者跟上。五步就够了：技能、记忆、终端、提问、清理。"
    ),
    "intro": "这是导览：**我的话是脚本**，代理和工具都是真实的。你写了“{text}”，我记下了，现在带你看一圈。先列计划。",
    "todos": [
        "看看有哪些技能",
        "在记忆里留一条笔记再取走",
        "在终端里建一个临时文件夹",
        "问你一个问题",
        "得到许可后清理",
    ],
    "think_skills": "计划好了。接下来是技能：处理常见工作的简短说明，需要时我会去读。",
    "found_skills": "这里有 {count} 个技能。我打开 `{name}` 作为例子。",
    "think_memory": (
        "技能看明白了。下一步是记忆：写在那里的内容，以后的每次对话都知道。这条笔记只是演示，所以同一次调用就删掉。"
    ),
    "think_terminal": (
        "现在用终端。新建一个只有一个小文件的文件夹没有风险，不需要询问。它建在这个会话自己的工作文件夹里。"
    ),
    "remark_terminal": "接下来是一条真实的命令，在这个会话自己的文件夹里执行。",
    "question": "这次导览的报告应该怎么写？",
    "choices": ["简短客观", "带一个例子", "写给初学者"],
    "think_ask": "我可以自己继续，但报告是给读者看的。问一下比猜更好。",
    "think_choice": (
        "回答是：{answer}。我就这样写报告。在那之前应该删掉临时文件夹。删除文件有风险，所以这条命令要等人允许。"
    ),
    "think_free_text": (
        "回答是用自己的话写的：{answer}。我的句子是固定的，只能在报告里重复它。"
        "在那之前应该删掉临时文件夹。删除文件有风险，所以这条命令要等人允许。"
    ),
    "remark_delete": "现在我要删除临时文件夹。**这需要你的许可**：允许或拒绝都可以。",
    "think_deleted": "都完成了。我用一张表总结，下面再给一个代码的例子。",
    "think_denied": "删除被拒绝了，所以我不再动那个文件夹。其余的都完成了，我用一张表总结。",
    "think_failed": "删除没有成功，我会如实说明。其余的都完成了，我用一张表总结。",
    "deleted": "它已按你的许可删除",
    "denied": "它**还在**，因为你没有允许删除",
    "failed": "它可能**还在**：删除它的命令没有成功",
    "extras": [
        "",
        """
**一个例子。** 请真实的模型*比较三辆上下班用的自行车*。它会列出要点，问你的预算，
用工具查资料，逐项勾掉清单，最后用表格回答。
""",
        """
**用简单的话说。** *代理*是分几步完成任务的程序。*模型*写出它的话。*工具*是它除了写字还能做的事。
*技能*是它先读的一页说明。做不能撤销的事之前，它会先请求*许可*。
""",
    ],
    "extra_free_text": """
**你自己的话**我收到了，见上文。脚本模型不能照着做，真实的模型可以。
""",
    "report": """*导览：话是脚本，代理和工具是真实的。*

## 你刚才看到的

你的回答是：**{answer}**。建过一个临时文件夹 `{folder}`。{outcome}。
{extra}

| 步骤 | 工具 | 用途 |
|---|---|---|
| 计划 | `todo` | 代理工作时逐项勾掉的清单 |
| 技能 | `skills_list`、`skill_view` | 代理需要时阅读的说明 |
| 记忆 | `memory` | 以后的对话都知道的笔记 |
| 命令 | `terminal` | 在这个会话的文件夹里做真实的工作 |
| 提问 | `clarify` | 代理等你回答，等几个小时也可以 |
| 许可 | `terminal` | 有风险的事不会不问就做 |

没有风险的那条命令是：

```bash
mkdir -p {folder}
printf 'made by the guided tour\\n' > {folder}/note.txt
ls -l {folder}
```

接下来可以试试：

- 打开这个回答上面的那一行：里面有每个想法、每次调用和结果。
- *编辑*你的消息，或*重新生成*这个回答：两个版本都会保留。
- 代理工作时关掉这个标签页再回来：什么都不会丢。
- 添加你自己的模型；首页写着在哪里添加。
""",
}
