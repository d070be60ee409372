"""Calls about what can be chosen, what the agent remembers, and how the service is."""

from typing import Literal, cast

from chat_core.api.endpoint import Call, Endpoint
from chat_core.api.wire import HealthAnswer, Memory, MemoryChange, Models, Skills
from chat_core.errors import BridgeUnavailable, NotFound


def list_models(call: Call) -> Models:
    """List the models a run may use."""
    models = call.workbench.models(call.user)
    if not models:
        _require_bridge(call)
    return Models(models=models)


def list_skills(call: Call) -> Skills:
    """List the skills a run may be given."""
    skills = call.workbench.skills(call.user)
    if not skills:
        _require_bridge(call)
    return Skills(skills=skills)


def get_memory(call: Call) -> Memory:
    """Return what the agent remembers: `memory` (its notes) or `user` (about the user)."""
    return Memory.of(call.workbench.memory(call.user, _which(call)))


def write_memory(call: Call, body: MemoryChange) -> Memory:
    """Replace what the agent remembers; refused when the agent could not read it back."""
    return Memory.of(call.workbench.write_memory(call.user, _which(call), body.text))


def get_health(call: Call) -> HealthAnswer:
    """Return how the service and its Bridge are."""
    return HealthAnswer.model_validate(call.workbench.health())


def _require_bridge(call: Call) -> None:
    state = call.workbench.bridge_state()
    if state.status != "ready":
        raise BridgeUnavailable(state.detail or "The Bridge is away.", bridge=state.status)


def _which(call: Call) -> Literal["memory", "user"]:
    which = call.ids["which"]
    if which not in {"memory", "user"}:
        raise NotFound(f"there is no memory {which!r}; there are memory and user")
    return cast(Literal["memory", "user"], which)


ENDPOINTS = (
    Endpoint("GET", "/models", list_models, errors=(503,)),
    Endpoint("GET", "/skills", list_skills, errors=(503,)),
    Endpoint("GET", "/memory/{which}", get_memory, errors=(503,)),
    Endpoint("PUT", "/memory/{which}", write_memory, errors=(503,)),
)
HEALTH = Endpoint("GET", "/health", get_health)
