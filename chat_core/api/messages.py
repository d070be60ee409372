"""Calls about single messages: their versions, their record, and what continues them."""

from starlette.responses import Response

from chat_core.api.endpoint import Call, Endpoint
from chat_core.api.wire import (
    Edit,
    LogView,
    MessageCreated,
    MessageLog,
    MessageVersion,
    Regenerated,
    RunOptions,
    RunStarted,
)


def regenerate(call: Call, body: RunOptions) -> Regenerated:
    """Answer again: a new version beside this ASSISTANT message, which stays."""
    started = call.workbench.regenerate(
        call.user, call.ids["message_id"], model_id=body.model_id, skill_folder=body.skill_folder
    )
    return Regenerated(run_id=started.run_id, new_message_id=started.message_uuid)


def continue_message(call: Call) -> RunStarted:
    """Go on in a STOPPED or INTERRUPTED message from what is kept of it."""
    return RunStarted.of(call.workbench.continue_run(call.user, call.ids["message_id"]))


def edit_message(call: Call, body: Edit) -> MessageCreated:
    """Write a new version of a USER message; no run is started yet."""
    message = call.workbench.edit(call.user, call.ids["message_id"], body.content)
    return MessageCreated(new_message_id=message.uuid)


def list_versions(call: Call) -> list[MessageVersion]:
    """List a message and its siblings in their order."""
    return [MessageVersion.of(message) for message in call.workbench.versions(call.user, call.ids["message_id"])]


def activate(call: Call) -> None:
    """Make this version the chosen one of its fork; every other fork stays as it is."""
    call.workbench.activate(call.user, call.ids["message_id"])


def activate_branch(call: Call) -> None:
    """Make the whole branch that holds this message the active one: each fork above it chooses the way to it."""
    call.workbench.activate_branch(call.user, call.ids["message_id"])


def get_log(call: Call) -> MessageLog:
    """Return the full record of a message."""
    message_id = call.ids["message_id"]
    entries = [LogView.of(entry) for entry in call.workbench.log(call.user, message_id)]
    return MessageLog(message_id=message_id, entries=entries)


def get_tool_result(call: Call) -> Response:
    """Return the whole text of a tool result of which the log holds the start only."""
    text = call.workbench.tool_result(call.user, call.ids["result_ref"])
    # A file, never shown by the browser: nobody knows what a tool returned.
    return Response(
        text.encode("utf-8", "replace"),
        media_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": 'attachment; filename="tool-result.txt"'},
    )


ENDPOINTS = (
    Endpoint("PATCH", "/messages/{message_id}", edit_message, errors=(409,)),
    Endpoint("POST", "/messages/{message_id}/regenerate", regenerate, status=202, errors=(409, 429, 503)),
    Endpoint("POST", "/messages/{message_id}/continue", continue_message, status=202, errors=(409, 429, 503)),
    Endpoint("GET", "/messages/{message_id}/versions", list_versions),
    Endpoint("POST", "/messages/{message_id}/activate", activate, status=204),
    Endpoint("POST", "/messages/{message_id}/activate-branch", activate_branch, status=204),
    Endpoint("GET", "/messages/{message_id}/log", get_log),
    Endpoint("GET", "/results/{result_ref}", get_tool_result, produces=("text/plain",)),
)
