"""Works on a run with `AIAgent`: gets the agent ready, lets it talk, and says how it ended."""

import logging
import re
import threading
from collections.abc import Mapping
from concurrent.futures import Future, wait
from typing import Any

from chat_core.bridge.model_catalog import Endpoint, LocalModelFailed, ModelCatalog
from chat_core.bridge.protocol import ErrorCode, RunControl, RunRequest
from chat_core.bridge.runtimes.hermes.agent_config import AgentConfig
from chat_core.bridge.runtimes.hermes.agent_pool import AgentKey, AgentPool, Slot, Stopped, StopSignal, in_thread
from chat_core.bridge.runtimes.hermes.approvals import approvals_bound, forget_grants
from chat_core.bridge.runtimes.hermes.engine import Engine, load_engine, working_folder
from chat_core.bridge.runtimes.hermes.failures import failure_of, redacted
from chat_core.bridge.runtimes.hermes.narration import Narrator
from chat_core.bridge.runtimes.hermes.transcript import context_of, history_of
from chat_core.bridge.settings import BridgeSettings
from chat_core.errors import NotFound

TOUR_TOOLSETS = ("todo", "memory", "skills", "clarify", "terminal")
MAX_SILENCES = 2
_INTERRUPT_AGAIN_SECONDS = 0.5
_QUICK_SECONDS = 0.3
_NOTES = re.compile(
    r"\s*⚠ Stream stalled mid tool-call \([^)]*\); the action was not executed\."
    r" Ask me to retry if you want to continue\."
    r"|\s*⚠ Connection dropped mid tool-call; reconnecting…"
    r"|\s*⚠️ No reply: [^\n]*\Z"
)
"""Remarks of hermes-agent in its final text; each was told as a status."""
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")

_log = logging.getLogger("parley.bridge.hermes")


class RunFailed(Exception):
    """The run cannot go on; becomes its terminal `error` event."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.message = message


class HermesRuntime:
    """The runtime `hermes`. `start()` imports hermes-agent in the background; runs posted meanwhile wait for it."""

    name = "hermes"

    def __init__(self, settings: BridgeSettings, catalog: ModelCatalog) -> None:
        self._settings = settings
        self._catalog = catalog
        self._config = AgentConfig(settings)
        self._pool = AgentPool(settings.agent_pool, self._build, _release, _close)
        self._engine: Future[Engine] = Future()

    def start(self) -> None:
        """Begin to import hermes-agent and to build a first agent, which warms up what is slow the first time."""
        self._settings.hermes_home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._config.announce([])
        threading.Thread(target=self._warm_up, daemon=True, name="hermes-warm-up").start()

    def is_ready(self) -> bool:
        return self._engine.done()

    def engine(self, timeout_seconds: float = 60.0) -> Engine:
        """Return hermes-agent, waiting for its import."""
        return self._engine.result(timeout_seconds)

    def run(self, request: RunRequest, control: RunControl) -> None:
        stop = StopSignal()
        control.on_stop(stop.stop)
        try:
            _Turn(self, request, control, stop).work()
        except Stopped:
            control.emit("final", text="", interrupted=True, context=context_of(request, [], [], False), model="")
        except RunFailed as failure:
            control.emit(
                "error", code=failure.code, message=failure.message, context=context_of(request, [], [], False)
            )

    def forget(self, agent_session: str) -> None:
        self._pool.forget(agent_session)
        if self._engine.done() and self._engine.exception() is None:
            engine = self._engine.result()
            forget_grants(engine, agent_session)
            engine.terminal.clear_task_env_overrides(agent_session)

    def memory_changed(self) -> None:
        """The memory files were written: every agent reads them anew before its next run."""
        self._pool.prompts_are_stale()

    def close(self) -> None:
        self._pool.close()

    # --- for a turn ---

    def await_engine(self, stop: StopSignal) -> Engine:
        try:
            engine: Engine = stop.wait_for(self._engine)
        except Stopped:
            raise
        except Exception as error:
            raise RunFailed("internal", f"hermes-agent could not be loaded: {type(error).__name__}.") from None
        return engine

    def find_endpoint(self, model_id: str, control: RunControl, stop: StopSignal) -> Endpoint:
        finding = in_thread(lambda: self._catalog.endpoint(model_id), "find-model")
        if not wait([finding], _QUICK_SECONDS).done:
            control.emit("status", text="Getting the model ready", level="info", code="model_starting")
        try:
            endpoint: Endpoint = stop.wait_for(finding)
        except NotFound as missing:
            raise RunFailed("unknown_model", missing.message) from None
        except LocalModelFailed as failed:
            raise RunFailed("local_model_failed", str(failed)) from None
        return endpoint

    def take_agent(self, key: AgentKey, stop: StopSignal) -> Slot:
        try:
            return self._pool.take(key, stop)
        except Stopped:
            raise
        except Exception as error:
            _log.exception("an agent for model %s could not be built", key.endpoint.id)
            reason = redacted(str(error), [key.endpoint.api_key])[:300]
            raise RunFailed("agent_failed", f"The agent could not be made: {reason}") from None

    def give_back(self, slot: Slot) -> None:
        self._pool.give_back(slot)

    def max_iterations(self, request: RunRequest) -> int:
        return request.max_iterations or self._settings.max_iterations

    def folder_of(self, agent_session: str) -> str:
        return str(working_folder(self._settings, agent_session))

    # --- building agents ---

    def _warm_up(self) -> None:
        try:
            engine = load_engine()
        except BaseException as error:
            _log.exception("hermes-agent could not be loaded")
            self._engine.set_exception(error)
            return
        self._engine.set_result(engine)
        unused = Endpoint("warm-up", "warm-up", "endpoint", "http://127.0.0.1:9/v1", "warm-up", "none")
        try:
            _release(self._build(AgentKey("warm-up", unused)))
            self._start_default_model()
        except Exception:
            _log.warning("the warm-up failed", exc_info=True)

    def _start_default_model(self) -> None:
        """When the small model of this machine is what a new user asks first, have it ready before they ask."""
        choices = self._catalog.choices()
        if choices and choices[0].kind == "local":
            self._catalog.endpoint(choices[0].id)

    def _build(self, key: AgentKey) -> Any:
        engine = self._engine.result()
        endpoint = key.endpoint
        self._config.announce([endpoint])
        agent = engine.agent_class(
            base_url=endpoint.base_url,
            api_key=endpoint.api_key or "none",
            provider="custom",
            model=endpoint.model,
            session_id=key.agent_session,
            platform="webui",
            quiet_mode=True,
            enabled_toolsets=self._toolsets(endpoint),
            skip_context_files=True,
            skip_memory=not endpoint.tools,
            load_soul_identity=endpoint.tools,
            max_iterations=self._settings.max_iterations,
            max_tokens=endpoint.max_tokens,
            tool_delay=0,
        )
        agent.suppress_status_output = True
        agent._dump_api_request_debug = _no_dump
        return agent

    def _toolsets(self, endpoint: Endpoint) -> list[str]:
        if not endpoint.tools:
            return []
        return list(TOUR_TOOLSETS if endpoint.kind == "tour" else self._settings.toolsets)


class _Turn:
    """One run, from the request to its terminal event."""

    def __init__(self, runtime: HermesRuntime, request: RunRequest, control: RunControl, stop: StopSignal) -> None:
        self._runtime = runtime
        self._request = request
        self._control = control
        self._stop = stop
        self._ended = threading.Event()
        self._timed_out = False
        self._interrupting = threading.Lock()

    def work(self) -> None:
        request, runtime = self._request, self._runtime
        self._engine = runtime.await_engine(self._stop)
        self._endpoint = runtime.find_endpoint(request.model, self._control, self._stop)
        instructions = self._skill_instructions()
        slot = runtime.take_agent(AgentKey(request.agent_session, self._endpoint), self._stop)
        try:
            self._converse(slot, instructions)
        finally:
            runtime.give_back(slot)

    def _skill_instructions(self) -> str:
        folder = self._request.skill_folder
        if not folder:
            return ""
        text, loaded, _missing = self._engine.skill_commands.build_preloaded_skills_prompt(
            [folder], task_id=self._request.agent_session
        )
        if not loaded:
            raise RunFailed("unknown_skill", f"There is no skill {folder!r} any more. Choose another one.")
        return str(text).replace("launched this CLI session with the", "chose for this message the", 1)

    def _converse(self, slot: Slot, instructions: str) -> None:
        agent, request = slot.built.result(), self._request
        narrator = Narrator(self._control, self._redact)
        narrator.on_silence = lambda: self._on_silence(agent, narrator)
        narrator.on_unanswered = agent.interrupt
        history = history_of(request)
        session = request.agent_session
        folder = self._runtime.folder_of(session)
        self._make_fresh(agent, slot, instructions, folder)
        before = _counts(agent)
        narrator.bind(agent)
        self._control.on_stop(lambda: self._interrupt(agent))
        try:
            with approvals_bound(self._engine, self._control, session, folder, agent.interrupt):
                result = agent.run_conversation(
                    request.message, conversation_history=history_of(request), task_id=session
                )
        finally:
            with self._interrupting:
                self._ended.set()
            narrator.unbind(agent)
        self._finish(agent, narrator, result if isinstance(result, dict) else {}, history, before)
        if narrator.memory_used:
            self._runtime.memory_changed()

    def _make_fresh(self, agent: Any, slot: Slot, instructions: str, folder: str) -> None:
        """Take away what the agent would carry over from another branch, and what a late interrupt left."""
        session = self._request.agent_session
        self._engine.terminal.register_task_env_overrides(session, {"cwd": folder, "env_type": "local"})
        self._engine.files.reset_file_dedup(session)
        agent._todo_store = self._engine.todo.TodoStore()
        agent.ephemeral_system_prompt = instructions or None
        agent.max_iterations = self._runtime.max_iterations(self._request)
        agent.clear_interrupt()
        if slot.stale_prompt:
            slot.stale_prompt = False
            agent._invalidate_system_prompt()

    def _interrupt(self, agent: Any) -> None:
        """Interrupt until the run has ended, and never afterwards: that would end the agent's next run."""
        while not self._ended.is_set():
            with self._interrupting:
                if not self._ended.is_set():
                    agent.interrupt()
            self._ended.wait(_INTERRUPT_AGAIN_SECONDS)

    def _on_silence(self, agent: Any, narrator: Narrator) -> None:
        if narrator.silences >= MAX_SILENCES and not self._timed_out:
            self._timed_out = True
            threading.Thread(target=self._interrupt, args=(agent,), daemon=True, name="model-timeout").start()

    def _finish(
        self,
        agent: Any,
        narrator: Narrator,
        result: Mapping[str, Any],
        history: list[dict[str, Any]],
        before: dict[str, float],
    ) -> None:
        context = context_of(self._request, history, result.get("messages"), narrator.compacted)
        narrator.finish(result, context["messages"])
        if usage := _usage(agent, self._endpoint, before):
            self._control.emit("usage", **usage)
        if self._control.stop_requested:
            self._control.emit("final", text=narrator.text, interrupted=True, context=context, model=self._endpoint.id)
            return
        failure = failure_of(result, self._endpoint, self._timed_out)
        if failure is not None:
            self._control.emit("error", code=failure[0], message=failure[1], context=context)
            return
        text = _final_text(result, narrator)
        interrupted = bool(result.get("interrupted"))
        if not text and not interrupted:
            message = f"{self._endpoint.label} ended without an answer. Try again, or choose another model."
            self._control.emit("error", code="model_no_answer", message=message, context=context)
            return
        self._control.emit("final", text=text, interrupted=interrupted, context=context, model=self._endpoint.id)

    def _redact(self, text: str) -> str:
        return redacted(text, [self._endpoint.api_key])


def _final_text(result: Mapping[str, Any], narrator: Narrator) -> str:
    text = result.get("final_response")
    if result.get("interrupted") or not isinstance(text, str) or not text.strip():
        return narrator.text
    return _NOTES.sub("", text).strip()


def _counts(agent: Any) -> dict[str, float]:
    """Return the tokens and the cost so far; the agent counts over its whole life."""
    counts = {name: getattr(agent, f"session_{name}", 0) or 0 for name in _TOKENS}
    return counts | {"cost_usd": float(getattr(agent, "session_estimated_cost_usd", 0.0) or 0.0)}


def _usage(agent: Any, endpoint: Endpoint, before: dict[str, float]) -> dict[str, Any]:
    """Return what this run used; empty when the model did not report it."""
    after = _counts(agent)
    usage: dict[str, Any] = {name: int(after[name] - before[name]) for name in _TOKENS}
    if not any(usage.values()):
        return {}
    if (cost := after["cost_usd"] - before["cost_usd"]) > 0:
        usage["cost_usd"] = round(cost, 6)
    compressor = agent.context_compressor
    used = getattr(compressor, "last_prompt_tokens", 0) or 0
    if used > 0:  # -1 right after a compaction
        usage["context_tokens"] = int(used)
    window = endpoint.context_window or getattr(compressor, "context_length", None)
    if window:
        usage["context_window"] = int(window)
    return usage


def _no_dump(*_args: Any, **_options: Any) -> None:
    """Stand in for hermes-agent's habit of writing whole failed requests into its home."""


def _release(agent: Any) -> None:
    agent.release_clients()


def _close(agent: Any) -> None:
    agent.close()
