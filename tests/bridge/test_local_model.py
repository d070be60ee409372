"""The real local model: xllamacpp with Gemma 3 270M, alone and under the real agent."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.support.real_bridge import PYTHON, ROOT, RealBridge
from tests.support.scripted_model import ScriptedModel

START_SECONDS = 100.0


class Program:
    """The local model started by a process of its own, as the Bridge does it."""

    def __init__(self, cache: Path, log: Path) -> None:
        assert PYTHON.exists(), f"{PYTHON} is missing: run `make install` first, these tests need the local model"
        command = [str(PYTHON), "-m", "tests.support.local_model_program", str(cache), str(log)]
        environment = dict(os.environ) | {"EXAMPLE_API_KEY": "sk-marker-local"}
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.started = self._read()

    def tell(self, command: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        bound = threading.Timer(START_SECONDS, self.process.kill)
        bound.start()
        try:
            line = self.process.stdout.readline()
        finally:
            bound.cancel()
        assert line, "the program with the local model ended"
        return dict(json.loads(line))

    def ask(self, *texts: str, **options: Any) -> httpx.Response:
        messages = [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]
        return httpx.post(
            f"{self.started['base_url']}/chat/completions",
            json={"model": self.started["model"], "messages": messages, **options},
            headers={"Authorization": f"Bearer {self.started['api_key']}"},
            timeout=120,
        )

    def answer_to(self, *texts: str) -> str:
        response = self.ask(*texts)
        assert response.status_code == 200, response.text
        return str(response.json()["choices"][0]["message"]["content"])

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(15)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("weights")
    yield folder
    for file in folder.iterdir():
        file.unlink()  # 250 MB: not to be kept with the other files of the test


@pytest.fixture(scope="module")
def program(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    program = Program(cache, tmp_path_factory.mktemp("log") / "local-model.log")
    assert "error" not in program.started, program.started
    yield program
    program.close()


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, f"process {pid} lives on"
        threading.Event().wait(0.05)


def test_short_questions_are_answered_shortly(program: Program) -> None:
    answers = {question: program.answer_to(question) for question, _ in KNOWN}
    assert {
        question: answers[question] for question, word in KNOWN if word.lower() not in answers[question].lower()
    } == {}
    assert all(len(answer) < 200 and answer == answer.strip() for answer in answers.values())


KNOWN = [
    ("What is the capital of France?", "Paris"),
    ("What is the capital of Japan?", "Tokyo"),
    ("Who wrote Romeo and Juliet?", "Shakespeare"),
    ("What color is the sky?", "Blue"),
    ("When did World War II end?", "1945"),
    ("What is the boiling point of water?", "100"),
    ("Hello", "Hello"),
    ("Who are you?", "model"),
    ("法国的首都是哪里？", "巴黎"),
    ("你好", "你好"),
]


def test_a_follow_up_knows_the_first_turn(program: Program) -> None:
    first = "What is the capital of France?"
    answer = program.answer_to(first)
    assert "Rome" in program.answer_to(first, answer, "And of Italy?")
    assert "France" in program.answer_to(first, answer, "What country did I ask about?")


def test_the_answer_is_streamed_and_ends_with_usage(program: Program) -> None:
    lines = [line for line in program.ask("What is a volcano?", stream=True).text.splitlines() if line]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    pieces = [choice["delta"].get("content", "") for chunk in chunks for choice in chunk["choices"]]
    assert lines[-1] == "data: [DONE]"
    assert len([piece for piece in pieces if piece]) > 3
    assert "".join(pieces) == "".join(pieces).strip()
    assert chunks[-1]["usage"]["completion_tokens"] > 3


def test_a_message_that_is_too_long_is_refused_as_a_context_error(program: Program) -> None:
    response = program.ask("word " * 5_000)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"


def test_a_long_conversation_is_answered(program: Program) -> None:
    turns = [text for number in range(100) for text in (f"What is {number} + 1?", f"{number} + 1 = {number + 1}.")]
    assert program.answer_to(*turns, "What is the capital of France?")


def test_without_the_key_nothing_is_answered(program: Program) -> None:
    url = program.started["base_url"]
    assert httpx.post(f"{url}/chat/completions", json={"messages": []}).status_code == 401
    assert httpx.get(f"{url}/models").status_code == 401


def test_every_port_of_the_process_is_closed_to_strangers(program: Program) -> None:
    connections = psutil.Process(program.started["pid"]).net_connections("tcp")
    listening = [connection.laddr for connection in connections if connection.status == psutil.CONN_LISTEN]
    assert listening
    assert {address.ip for address in listening} == {"127.0.0.1"}
    statuses = [httpx.post(f"http://127.0.0.1:{address.port}/completion", json={}).status_code for address in listening]
    assert set(statuses) == {401}


def test_secrets_are_neither_in_the_arguments_nor_in_the_environment(program: Program) -> None:
    process = psutil.Process(program.started["pid"])
    assert program.started["api_key"] not in " ".join(process.cmdline())
    assert "sk-marker-local" not in process.environ().values()


def test_a_model_that_died_is_started_again_at_the_same_address(program: Program) -> None:
    before = dict(program.started)
    os.kill(before["pid"], signal.SIGKILL)
    deadline = time.monotonic() + 10
    while program.started["pid"] == before["pid"]:  # its last threads take a moment to go
        assert time.monotonic() < deadline, "the model was not started again"
        program.started = program.tell("url")
    assert program.started["base_url"] == before["base_url"]
    assert "Paris" in program.answer_to("What is the capital of France?")


def test_the_model_ends_with_its_parent_even_when_that_is_killed(cache: Path, tmp_path: Path) -> None:
    program = Program(cache, tmp_path / "local-model.log")
    program.process.kill()
    program.process.wait(10)
    wait_until_gone(program.started["pid"])


def test_closing_ends_the_model_and_it_stays_closed(cache: Path, tmp_path: Path) -> None:
    program = Program(cache, tmp_path / "local-model.log")
    assert program.tell("close") == {"pid": None}
    wait_until_gone(program.started["pid"])
    assert "shut down" in program.tell("url")["error"]
    program.close()


def test_the_real_agent_answers_with_the_local_model_and_a_follow_up_knows_the_first_turn(
    cache: Path, program: Program, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "models").symlink_to(cache)
    with ScriptedModel() as unused:
        bridge = RealBridge(tmp_path, unused, {"PARLEY_MODEL_TIMEOUT_SECONDS": "60"}).start()
        try:
            first = bridge.ask("What is the capital of France?", session="s1", model="local")
            assert "Paris" in first.text, first.end()
            second = bridge.ask("And of Italy?", session="s1", model="local", contexts=[first.context])
            assert "Rome" in second.text
            long = bridge.ask("word " * 5_000, session="s1", model="local", contexts=[first.context])
            assert long.end().kind == "error"
            assert long.end().data["code"] == "context_too_long"
        finally:
            bridge.close()
