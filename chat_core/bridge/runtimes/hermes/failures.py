"""Says in a plain sentence why a run of hermes-agent failed."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from chat_core.bridge.model_catalog import Endpoint
from chat_core.bridge.protocol import ErrorCode

_STATUS = re.compile(r"\bHTTP (\d{3})\b")
_LOOKS_SECRET = re.compile(r"\b(?:sk|pk|key|xai|gsk|ghp)[-_][A-Za-z0-9_\-*]{6,}|Bearer\s+\S+", re.IGNORECASE)
_TOO_LONG = re.compile(r"context (?:length|window)|maximum context|too many tokens|prompt is too long", re.IGNORECASE)
_NO_ANSWER = ("empty_response", "invalid_response", "no_content")


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Return the text without the given keys and without what looks like one."""
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, "[key]")
    return _LOOKS_SECRET.sub("[key]", text)


def failure_of(result: Mapping[str, Any], endpoint: Endpoint, timed_out: bool) -> tuple[ErrorCode, str] | None:
    """Return the code and the sentence when the result of a run is a failure, else None."""
    error = str(result.get("error") or "")
    exit_reason = str(result.get("turn_exit_reason") or "")
    name = endpoint.label
    if timed_out:
        return "model_timeout", f"{name} accepted the request but stayed silent. Try again, or choose another model."
    if exit_reason.startswith("max_iterations") and str(result.get("final_response") or "").startswith("⚠️ No reply"):
        return "agent_failed", "The agent used up its steps before it came to an answer. Ask it to continue."
    if exit_reason.startswith(_NO_ANSWER) or str(result.get("final_response") or "").startswith("⚠️ No reply"):
        return "model_no_answer", f"{name} gave only empty answers. Try again, or choose another model."
    if not (result.get("failed") or (result.get("partial") and error)):
        return None
    if result.get("compression_exhausted") or _TOO_LONG.search(error):
        return (
            "context_too_long",
            f"The conversation is longer than {name} can take, and it could not be condensed further. "
            "Start a new session, or reset the agent's context.",
        )
    if found := _STATUS.search(error):
        return _by_status(int(found[1]), name, redacted(error, [endpoint.api_key]))
    return _by_reason(str(result.get("failure_reason") or ""), error, endpoint)


def _by_status(status: int, name: str, error: str) -> tuple[ErrorCode, str]:
    if status in {401, 403}:
        return "model_auth", f"{name} refused the key (HTTP {status}). Check the key of this model."
    if status == 404:
        return "model_not_found", f"{name} was not found at its address (HTTP 404). Check its address and model name."
    if status == 429:
        return "model_rate_limit", f"{name} is receiving too many requests (HTTP 429). Wait a little and try again."
    if status == 413:
        return "context_too_long", f"The request is larger than {name} accepts (HTTP 413)."
    if status >= 500:
        return "model_server_error", f"{name} has a fault of its own (HTTP {status}). Try again later."
    if status == 402:
        return "model_rate_limit", f"The account of {name} has no credit left (HTTP 402)."
    reason = _STATUS.sub("", error).strip(" :.")[:300]
    return "model_bad_request", f"{name} refused the request (HTTP {status}): {reason}."


def _by_reason(reason: str, error: str, endpoint: Endpoint) -> tuple[ErrorCode, str]:
    name, lower = endpoint.label, error.lower()
    if "connection error" in lower or "connect" in lower or "name or service" in lower:
        return "model_unreachable", f"{name} cannot be reached at its address. Is it running?"
    if "timed out" in lower or "timeout" in lower or "unresponsive" in lower:
        return "model_timeout", f"{name} did not answer in time. Try again, or choose another model."
    if reason == "rate_limit":
        return "model_rate_limit", f"{name} is receiving too many requests. Wait a little and try again."
    if reason in {"server_error", "overloaded"}:
        return "model_server_error", f"{name} has a fault of its own. Try again later."
    if reason == "timeout":
        return "model_unreachable", f"The connection to {name} broke several times."
    detail = redacted(error, [endpoint.api_key])[:300] or "it gave no reason"
    return "agent_failed", f"The agent could not finish: {detail}"
