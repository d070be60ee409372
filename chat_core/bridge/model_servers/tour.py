"""The guided tour as an OpenAI-compatible model: streams what `tour_script` writes, at a pace people can follow."""

import asyncio
import hmac
import json
import re
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from chat_core.bridge.model_servers.tour_script import Reply, next_reply

MODEL_NAME = "guided-tour"
CONTEXT_LENGTH = 128_000
_PIECE = re.compile(r"\s*\S{1,12}")


def routes(api_key: str, pace_seconds: float) -> list[Route]:
    """Return the routes `/tour/v1/models` and `/tour/v1/chat/completions`.

    Only callers with the key are answered. `pace_seconds` lie between two pieces of text, thoughts at half of it.
    """

    def allowed(request: Request) -> bool:
        return hmac.compare_digest(request.headers.get("authorization", ""), f"Bearer {api_key}")

    async def models(request: Request) -> Response:
        if not allowed(request):
            return _refusal()
        model = {"id": MODEL_NAME, "object": "model", "owned_by": "parley", "context_length": CONTEXT_LENGTH}
        return JSONResponse({"object": "list", "data": [model]})

    async def completions(request: Request) -> Response:
        if not allowed(request):
            return _refusal()
        body = await request.json()
        reply = next_reply(body.get("messages") or [])
        if not body.get("stream"):
            return JSONResponse(_whole(reply))
        return StreamingResponse(_stream(reply, pace_seconds), media_type="text/event-stream")

    return [
        Route("/tour/v1/models", models),
        Route("/tour/v1/chat/completions", completions, methods=["POST"]),
    ]


def _refusal() -> Response:
    error = {"message": "Incorrect API key provided", "type": "invalid_request_error", "code": "invalid_api_key"}
    return JSONResponse({"error": error}, 401)


async def _stream(reply: Reply, pace_seconds: float) -> AsyncIterator[str]:
    head = _head("chat.completion.chunk")
    yield _chunk(head, {"role": "assistant", "content": ""})
    for piece in _PIECE.findall(reply.thinking):
        yield _chunk(head, {"reasoning_content": piece})
        await asyncio.sleep(pace_seconds / 2)
    for piece in _pieces(reply.text):
        yield _chunk(head, {"content": piece})
        await asyncio.sleep(pace_seconds)
    for index, call in enumerate(_calls(reply)):
        await asyncio.sleep(pace_seconds * 8)
        yield _chunk(head, {"tool_calls": [{"index": index, **call}]})
    yield _chunk(head, {}, "tool_calls" if reply.calls else "stop", _usage(reply))
    yield "data: [DONE]\n\n"


def _pieces(text: str) -> Iterator[str]:
    """Cut the text into words; what follows the last word (line ends) stays with it."""
    end = 0
    for match in _PIECE.finditer(text):
        yield match[0]
        end = match.end()
    if end < len(text):
        yield text[end:]


def _whole(reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text, "reasoning_content": reply.thinking}
    if reply.calls:
        message["tool_calls"] = _calls(reply)
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if reply.calls else "stop"}
    return {**_head("chat.completion"), "choices": [choice], "usage": _usage(reply)}


def _calls(reply: Reply) -> list[dict[str, Any]]:
    return [
        {
            # Unique in every conversation: the agent drops a call whose id it has seen before.
            "id": f"tour_{uuid.uuid4().hex[:16]}",
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)},
        }
        for call in reply.calls
    ]


def _head(kind: str) -> dict[str, Any]:
    return {"id": f"tour-{uuid.uuid4().hex[:12]}", "object": kind, "created": int(time.time()), "model": MODEL_NAME}


def _chunk(
    head: dict[str, Any], delta: dict[str, Any], finish_reason: str | None = None, usage: dict[str, int] | None = None
) -> str:
    chunk = {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}
    if usage is not None:
        chunk["usage"] = usage
    return f"data: {json.dumps(chunk)}\n\n"


def _usage(reply: Reply) -> dict[str, int]:
    """Rough counts, four characters a token: a scripted model has no tokenizer."""
    written = (len(reply.thinking) + len(reply.text)) // 4 + 20 * len(reply.calls)
    return {"prompt_tokens": 3_000, "completion_tokens": written, "total_tokens": 3_000 + written}
