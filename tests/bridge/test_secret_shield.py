"""Known keys never get into the events of a run, in whatever form and pieces they come."""

import base64
import itertools
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat_core.bridge.protocol import RunRequest
from chat_core.bridge.run_host import LocalRunHost
from chat_core.bridge.secret_shield import SecretShield
from tests.support.runtimes import GatedRuntime, answers, calls_tool

KEY = "sk-marker/+ä-0123456789"
FORMS = [KEY, base64.b64encode(KEY.encode()).decode(), quote(KEY, safe="")]


def told(shield: SecretShield, pieces: list[str]) -> str:
    events = [event for piece in pieces for event in shield.pass_through("answer", {"text": piece})]
    events += shield.pass_through("final", {"text": ""})
    return "".join(data["text"] for _, data in events)


@pytest.mark.parametrize("form", FORMS)
@given(cuts=st.lists(st.integers(0, 60), max_size=6))
def test_a_key_cut_anywhere_is_hidden_and_the_rest_is_kept(form: str, cuts: list[int]) -> None:
    text = f"before {form} after sk-"
    places = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(places)]
    shown = told(SecretShield([KEY]), pieces)
    assert form.rstrip("=") not in shown
    assert shown.startswith("before [key]")
    assert shown.endswith(" after sk-")


@given(st.lists(st.text(alphabet="sk-marec/+ ", max_size=5)))
def test_text_without_a_key_is_told_to_the_letter(pieces: list[str]) -> None:
    assert told(SecretShield([KEY]), pieces) == "".join(pieces)


def test_a_key_inside_of_longer_base64_is_hidden() -> None:
    header = base64.b64encode(f"{KEY}:and more".encode()).decode()
    shown = SecretShield([KEY]).pass_through("status", {"text": header})
    assert base64.b64encode(KEY.encode()).decode()[:24] not in str(shown)


def test_tools_that_read_a_key_do_not_tell_it() -> None:
    runtime = GatedRuntime([calls_tool("terminal", result=f"api_key = {KEY}", command=f"echo {KEY}"), answers(KEY)])
    runtime.release()
    host = LocalRunHost({"gated": runtime}, secrets=lambda: [KEY])
    host.start(RunRequest(run_id="r", agent_session="s", runtime="gated", message="go"))
    events = list(host.events("r"))
    assert events[-1].kind == "final"
    assert KEY not in str(events)
    assert events[-1].data["text"] == "[key]"
    assert [event.data["text"] for event in events if event.kind == "answer"] == ["[key]"]
