"""One call of the API: its function, and how a request becomes arguments and a result an answer.

The function's own signature is the contract: `body` and `query` are validated into the models they are annotated
with, the result's annotation is the answer's model, the docstring's first line its summary. Routes and the OpenAPI
document are both made from it, so neither can say something else than the code does.
"""

import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

import anyio
import anyio.to_thread
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from chat_core.api.errors import error_response, refusal
from chat_core.bridge.protocol import dump_json
from chat_core.errors import InvalidInput
from chat_core.models import LOCAL_USER, User
from chat_core.text import storable_json
from chat_core.workbench import Workbench

GetWorkbench = Callable[[], Workbench]
# The workbench blocks (SQLite, the Bridge). Own slots, so that a slow Bridge cannot use up the pages' threads.
CALL_THREADS = 24
_TOO_DEEP = "The body is nested too deeply."


@dataclass(frozen=True, slots=True)
class Call:
    """What every call gets: the workbench, who asks, and the ids in the path."""

    workbench: Workbench
    user: User
    ids: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method and path of the API and the function that answers it."""

    method: str
    path: str
    """Below the API's prefix, ids in braces."""
    function: Callable[..., Any]
    status: int = 200
    errors: tuple[int, ...] = ()
    """Statuses beyond 400 (with a body or query) and 404 (with ids), which follow from the signature."""
    produces: tuple[str, ...] = ("application/json",)
    consumes: str = "application/json"

    @property
    def summary(self) -> str:
        return (inspect.getdoc(self.function) or "").split("\n")[0]

    @property
    def hints(self) -> dict[str, Any]:
        return get_type_hints(self.function)

    @property
    def body_model(self) -> type[BaseModel] | None:
        return self.hints.get("body")

    @property
    def query_model(self) -> type[BaseModel] | None:
        return self.hints.get("query")

    @property
    def answer_model(self) -> Any:
        """A model, a list of one, `Response` for a file, or None for an empty answer."""
        answer = self.hints["return"]
        return None if answer is type(None) else answer


class PathCalls:
    """All calls of one path, as an ASGI application: picks the one for the method and answers every error."""

    def __init__(
        self, endpoints: Iterable[Endpoint], get_workbench: GetWorkbench, limiter: anyio.CapacityLimiter
    ) -> None:
        self._endpoints = {endpoint.method: endpoint for endpoint in endpoints}
        self._get_workbench = get_workbench
        self._limiter = limiter

    @property
    def methods(self) -> list[str]:
        return sorted(self._endpoints)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return
        except Exception as error:
            response = error_response(error)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        endpoint = self._endpoints.get(method)
        if endpoint is None:
            return method_refused(request.method, self.methods)
        arguments: dict[str, Any] = {}
        if endpoint.query_model is not None:
            arguments["query"] = _validated(endpoint.query_model, dict(request.query_params))
        if endpoint.body_model is not None:
            arguments["body"] = _validated(endpoint.body_model, _json_object(await request.body()))
        elif endpoint.hints.get("data") is bytes:
            arguments["data"] = await request.body()

        def work() -> Response:
            call = Call(self._get_workbench(), LOCAL_USER, request.path_params)
            return _response(endpoint, endpoint.function(call, **arguments))

        return await anyio.to_thread.run_sync(work, limiter=self._limiter)


def routes_of(endpoints: Sequence[Endpoint], prefix: str, get_workbench: GetWorkbench) -> list[Route]:
    """Return one route per path; it takes every method, so that a wrong one is answered in our shape."""
    limiter = anyio.CapacityLimiter(CALL_THREADS)
    by_path: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, []).append(endpoint)
    return [Route(prefix + path, PathCalls(calls, get_workbench, limiter)) for path, calls in by_path.items()]


def method_refused(method: str, allowed: Sequence[str]) -> Response:
    message = f"{method} is not possible here; use {' or '.join(allowed)}."
    return refusal(405, "method_not_allowed", message, headers={"Allow": ", ".join(allowed)})


def _json_object(data: bytes) -> dict[str, Any]:
    """Read a body; an empty one is an object without fields."""
    if not data.strip():
        return {}
    try:
        value = storable_json(json.loads(data))
    except RecursionError:
        raise InvalidInput(_TOO_DEEP) from None
    except ValueError as error:
        raise InvalidInput(f"The body is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise InvalidInput("The body must be a JSON object.")
    return value


def _validated(model: type[BaseModel], values: Mapping[str, Any]) -> BaseModel:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problems = [
            {"field": ".".join(str(part) for part in item["loc"]) or "body", "problem": item["msg"]}
            for item in error.errors(include_url=False, include_input=False, include_context=False)
        ]
        sentence = "; ".join(f"{item['field']}: {item['problem']}" for item in problems[:5])
        raise InvalidInput(f"The request is not right: {sentence}.", problems=problems[:20]) from None


def _response(endpoint: Endpoint, result: Any) -> Response:
    if isinstance(result, Response):
        result.headers.setdefault("Cache-Control", "no-store")
        return result
    if result is None:
        return Response(status_code=204, headers={"Cache-Control": "no-store"})
    if isinstance(result, BaseModel):
        value: Any = result.model_dump(mode="json")
    else:
        value = [item.model_dump(mode="json") for item in result]
    return Response(
        dump_json(value), endpoint.status, headers={"Cache-Control": "no-store"}, media_type="application/json"
    )
