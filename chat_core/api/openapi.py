"""Builds the OpenAPI 3.1 document from the endpoints themselves."""

import re
from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.responses import Response

from chat_core.api.endpoint import Endpoint
from chat_core.api.wire import ErrorAnswer

_REF = "#/components/schemas/{model}"
_ID = re.compile(r"\{(\w+)\}")
_REASONS = {
    400: "The request is not right; the message says what and why.",
    404: "There is no such thing, or it is somebody else's.",
    409: "Something else came first.",
    413: "The body is too large.",
    429: "Too many runs are at work.",
    503: "The Bridge or the store is away.",
}
_STREAM_TEXT = (
    "Server-Sent Events from after `Last-Event-ID` (or `last_event_id`) to the end of the run: token, progress, "
    "tool_call, done, error, resync. A comment every 5 s keeps the connection alive."
)


def openapi_document(groups: Sequence[tuple[str, Sequence[Endpoint]]], version: str) -> dict[str, Any]:
    """Return the document for these endpoints, each group with its path prefix."""
    models = {_model_of(model) for _, endpoints in groups for item in endpoints for model in _models_used(item)}
    models.add(ErrorAnswer)
    ordered = sorted(models, key=lambda model: model.__name__)
    _, schema = models_json_schema([(model, "validation") for model in ordered], ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for prefix, endpoints in groups:
        for endpoint in endpoints:
            paths.setdefault(prefix + endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Parley", "version": version, "description": "Sessions, messages and runs of Parley."},
        "paths": paths,
        "components": {"schemas": schema.get("$defs", {})},
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.function.__name__,
        "summary": endpoint.summary,
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint)],
        "responses": _responses(endpoint),
    }
    if endpoint.body_model is not None:
        operation["requestBody"] = {"content": {endpoint.consumes: {"schema": _ref(endpoint.body_model)}}}
    elif "data" in endpoint.hints:
        operation["requestBody"] = {"required": True, "content": {endpoint.consumes: {"schema": {"type": "object"}}}}
    return operation


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    responses: dict[str, Any] = {str(endpoint.status): _success(endpoint)}
    has_body = endpoint.body_model is not None or "data" in endpoint.hints
    statuses = set(endpoint.errors)
    if has_body or endpoint.query_model is not None:
        statuses.add(400)
    if has_body:
        statuses.add(413)
    if _ID.search(endpoint.path):
        statuses.add(404)
    for status in sorted(statuses):
        content = {"application/json": {"schema": _ref(ErrorAnswer)}}
        responses[str(status)] = {"description": _REASONS[status], "content": content}
    return responses


def _success(endpoint: Endpoint) -> dict[str, Any]:
    answer = endpoint.answer_model
    if answer is None:
        return {"description": "Done."}
    if answer is Response:
        return {"description": "A file.", "content": {kind: {"schema": {}} for kind in endpoint.produces}}
    items = get_args(answer)
    schema = {"type": "array", "items": _ref(items[0])} if items else _ref(answer)
    return {"description": "Done.", "content": {"application/json": {"schema": schema}}}


def stream_operation(method_name: str) -> dict[str, Any]:
    """Return the operation of the event stream, which is no ordinary endpoint."""
    text = {"schema": {"type": "string"}}
    error = {"application/json": {"schema": _ref(ErrorAnswer)}}
    return {
        "operationId": method_name,
        "summary": "Follow a run live, from any point.",
        "parameters": [
            {"name": "run_id", "in": "path", "required": True, **text},
            {"name": "Last-Event-ID", "in": "header", "required": False, **text},
            {"name": "last_event_id", "in": "query", "required": False, **text},
        ],
        "responses": {
            "200": {"description": _STREAM_TEXT, "content": {"text/event-stream": text}},
            "204": {"description": "There is nothing left to stream."},
            "404": {"description": _REASONS[404], "content": error},
        },
    }


def _path_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _ID.findall(endpoint.path)
    ]


def _query_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    if endpoint.query_model is None:
        return []
    schema = endpoint.query_model.model_json_schema()
    return [
        {"name": name, "in": "query", "required": name in schema.get("required", []), "schema": item}
        for name, item in schema.get("properties", {}).items()
    ]


def _models_used(endpoint: Endpoint) -> list[Any]:
    answer = endpoint.answer_model
    used = [endpoint.body_model] if endpoint.body_model is not None else []
    if answer is not None and answer is not Response:
        used.append(answer)
    return used


def _model_of(annotation: Any) -> type[BaseModel]:
    items = get_args(annotation)
    model: type[BaseModel] = items[0] if items else annotation
    return model


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}
