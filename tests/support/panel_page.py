"""The page of `panel_app`: a transcript, the live panel or a record, and the composer. The URL says what to show."""

from datetime import UTC, datetime

import streamlit as st

from chat_core.bridge.protocol import ModelChoice, SkillChoice
from chat_core.i18n import Texts
from chat_core.models import Message, RunState
from chat_core.ui.composer import Prefill, Refused, composer, sent_value
from chat_core.ui.live_panel import live_panel, record_panel

st.set_page_config(page_title="Panel", layout="centered")
st.html("<style>[data-testid=stMainBlockContainer],[data-testid=stBottomBlockContainer]{max-width:860px}</style>")
state = st.session_state
state.runs_of_the_script = state.get("runs_of_the_script", 0) + 1
query = st.query_params
texts = Texts("zh-CN" if query.get("lang") == "zh" else "en")


def on_send() -> None:
    sent = sent_value("composer")
    if sent is None:
        return
    state.sent = [*state.get("sent", []), sent]
    if "refuse" in sent.text:
        state.refused = Refused(sent.nonce, "Only <b>5</b> runs at a time. Your text is kept.")
    elif "silent" not in sent.text:
        state.accepted = sent.nonce
        if not sent.session_id:
            query["session"] = "made-by-send"


def note(name: str) -> None:
    state[name] = state.get(name, 0) + 1


run_id = query.get("run", "")
for number in range(int(query.get("lines", "0"))):
    st.markdown(f"Earlier line {number}")
status = "WAITING" if query.get("status") == "waiting" else "RUNNING"
run = RunState(run_id, "s1", "m1", status, False, 0, None) if run_id else None
if run and not state.get("finished"):
    live_panel(
        run,
        texts=texts.group("panel"),
        key=f"live_{run_id}",
        on_finished=lambda: None if query.get("keep") else note("finished"),
        on_offline=lambda: note("offline"),
        on_online=lambda: note("online"),
    )
if query.get("record"):
    now = datetime.now(UTC)
    message = Message(
        1,
        query["record"],
        1,
        None,
        True,
        0,
        "r",
        "ASSISTANT",
        "Done.",
        "SUCCESS",
        "hermes",
        "",
        "",
        None,
        None,
        now,
        now,
    )
    record_panel(message, line="Thought for 12 s · 5 tools · 3/3 done", texts=texts.group("panel"))
    st.markdown("The answer, drawn by the page.")

facts = {name: state.get(name, 0) for name in ("runs_of_the_script", "finished", "offline", "online")}
st.text(" ".join(f"{name}={value}" for name, value in facts.items()))
for sent in state.get("sent", []):
    st.text(f"sent[{sent.session_id}|{sent.model_id}|{sent.skill_folder}] {sent.text[:200]}")
with st.container(horizontal=True):
    st.button("Rerun", key="rerun")
    st.button("Example", key="example", on_click=lambda: note("prefill"))
    st.button("Other run", key="other", on_click=lambda: query.update(run=query["other"], other=query["run"]))
    st.button("Other session", key="switch", on_click=lambda: query.update(session="s2", run=""))
    st.button("Back", key="back", on_click=lambda: query.update(session="s1"))

with st.bottom:
    composer(
        session_id=query.get("session", ""),
        models=[
            ModelChoice(id="local", label="Local (Gemma 3 270M)", tools=False, kind="local", is_default=True),
            ModelChoice(id="tour", label="Guided tour (scripted)", kind="tour"),
        ],
        skills=[SkillChoice(folder="code-review", name="Code review", description="Looks for what can break")],
        model_id="",
        skill_folder="",
        run=run if not state.get("finished") else None,
        accepted=state.get("accepted"),
        refused=state.get("refused"),
        prefill=Prefill(f"p{state.prefill}", "What can you do?", model_id="tour") if state.get("prefill") else None,
        texts=texts.group("composer"),
        on_send=on_send,
    )
