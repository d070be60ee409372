"""Knows which models can be chosen and how to reach them.

Two are built in: the small model of this machine and the guided tour. The others stand in `models.toml`, which
is read again whenever it changes; one more comes from the `OPENAI_*` environment.
"""

import logging
import os
import re
import stat
import threading
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from chat_core.bridge.protocol import ModelChoice
from chat_core.errors import NotFound

LOCAL_MODEL_ID = "local"
TOUR_MODEL_ID = "tour"
ENVIRONMENT_MODEL_ID = "openai-env"
DEFAULT_OPENAI_URL = "https://api.openai.com/v1"
LOCAL_CONTEXT_WINDOW = 6_144  # what one of its slots holds
TOUR_CONTEXT_WINDOW = 128_000
DEFAULT_MAX_TOKENS = 8192
LOCAL_MAX_TOKENS = 512
_EXAMPLE = (
    'for example: [[models]] id = "gpt", label = "GPT", base_url = "https://…/v1", model = "…", api_key_env = "…"'
)

_log = logging.getLogger("parley.bridge.model_catalog")

ModelKind = Literal["local", "tour", "endpoint"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model and how to reach it. `context_window` is None when nobody said how large it is."""

    id: str
    label: str
    kind: ModelKind
    base_url: str
    model: str
    api_key: str = field(repr=False)
    context_window: int | None = None
    tools: bool = True
    max_tokens: int = DEFAULT_MAX_TOKENS


class LocalModelServer(Protocol):
    """The model server on this machine; see `model_servers.local_model`."""

    @property
    def api_key(self) -> str: ...

    @property
    def model_name(self) -> str: ...

    def base_url(self) -> str:
        """Start the server on first use. Raises RuntimeError with a plain sentence."""

    def available(self) -> str | None:
        """Return None, or why the model cannot be used here."""


class LocalModelFailed(Exception):
    """The model server of this machine did not start; the message says why."""


class _ModelRow(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    id: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$")
    label: str = Field(default="", max_length=100)
    base_url: str
    model: str = Field(min_length=1)
    api_key: str = Field(default="", repr=False)
    api_key_env: str = ""
    context_window: int | None = Field(default=None, ge=1024)
    tools: bool = True
    max_tokens: int = Field(default=DEFAULT_MAX_TOKENS, ge=16)

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, text: str) -> str:
        url = urlsplit(text)
        if url.scheme not in {"http", "https"} or not url.hostname:
            raise ValueError('must be an address such as "https://api.example.com/v1"')
        if url.username or url.password:
            raise ValueError("must not hold a user name or password; use api_key or api_key_env")
        return text.rstrip("/")


class ModelCatalog:
    """The models of this Bridge. Safe from any thread; no answer ever holds a key but `endpoint`'s."""

    def __init__(
        self,
        models_file: Path,
        environ: Mapping[str, str],
        local: LocalModelServer | None = None,
        tour_url: str = "",
        tour_key: str = "",
    ) -> None:
        self._models_file = models_file
        self._environ = environ
        self._local = local
        self._tour_url = tour_url
        self._tour_key = tour_key
        self._lock = threading.RLock()  # a log record made inside asks for the secrets to hide
        self._stamp: tuple[int, int, int] | None = None
        self._rows: list[_ModelRow] = []
        self._problems: list[str] = []

    def choices(self) -> list[ModelChoice]:
        """Return what can be chosen, the default first."""
        rows = [_choice(endpoint) for endpoint in self._endpoints()]
        if self._has_local():
            label = "Local (Gemma 3 270M)"
            rows.append(ModelChoice(id=LOCAL_MODEL_ID, label=label, context_window=LOCAL_CONTEXT_WINDOW, tools=False,
                                    kind="local"))  # fmt: skip
        if self._tour_url:
            window = TOUR_CONTEXT_WINDOW
            rows.append(ModelChoice(id=TOUR_MODEL_ID, label="Guided tour", context_window=window, kind="tour"))
        if rows:
            rows[0] = rows[0].model_copy(update={"is_default": True})
        return rows

    def problems(self) -> list[str]:
        """Return plain sentences about what is wrong with `models.toml` and the built-in models."""
        with self._lock:
            self._refresh()
            problems = list(self._problems)
        if self._local is not None and (reason := self._local.available()):
            problems.append(reason)
        return problems

    def endpoint(self, model_id: str) -> Endpoint:
        """Return how to reach a model; the empty id is the default. Starts the local model's server on first use.

        Raises NotFound for an unknown id and LocalModelFailed. May take seconds.
        """
        endpoints = self._endpoints()
        if not model_id:
            if endpoints:
                return endpoints[0]
            model_id = LOCAL_MODEL_ID if self._has_local() or not self._tour_url else TOUR_MODEL_ID
        for endpoint in endpoints:
            if endpoint.id == model_id:
                return endpoint
        if model_id == LOCAL_MODEL_ID and self._local is not None:
            return self._local_endpoint(self._local)
        if model_id == TOUR_MODEL_ID and self._tour_url:
            return Endpoint(
                id=TOUR_MODEL_ID, label="Guided tour", kind="tour", base_url=self._tour_url, model="guided-tour",
                api_key=self._tour_key, context_window=TOUR_CONTEXT_WINDOW,
            )  # fmt: skip
        raise NotFound(f"There is no model {model_id!r} any more. Choose another one.", model_id=model_id)

    def secrets(self) -> list[str]:
        """Return every key this catalog knows, for redaction."""
        keys = [endpoint.api_key for endpoint in self._endpoints()]
        return [key for key in [*keys, self._tour_key] if key]

    def key_variables(self) -> list[str]:
        """Return the names of the environment variables that hold keys."""
        with self._lock:
            self._refresh()
            return [row.api_key_env for row in self._rows if row.api_key_env] + ["OPENAI_API_KEY"]

    def _has_local(self) -> bool:
        return self._local is not None and self._local.available() is None

    def _local_endpoint(self, server: LocalModelServer) -> Endpoint:
        reason = server.available()
        if reason:
            raise LocalModelFailed(reason)
        try:
            base_url = server.base_url()
        except RuntimeError as error:
            raise LocalModelFailed(str(error)) from None
        return Endpoint(
            id=LOCAL_MODEL_ID, label="Local (Gemma 3 270M)", kind="local", base_url=base_url.rstrip("/"),
            model=server.model_name, api_key=server.api_key, context_window=LOCAL_CONTEXT_WINDOW, tools=False,
            max_tokens=LOCAL_MAX_TOKENS,
        )  # fmt: skip

    def _endpoints(self) -> list[Endpoint]:
        with self._lock:
            self._refresh()
            rows = list(self._rows)
        endpoints = [self._endpoint_of(row) for row in rows]
        if from_environment := self._environment_endpoint():
            endpoints.append(from_environment)
        return endpoints

    def _endpoint_of(self, row: _ModelRow) -> Endpoint:
        key = row.api_key or self._environ.get(row.api_key_env, "")
        return Endpoint(
            id=row.id, label=row.label or row.id, kind="endpoint", base_url=row.base_url, model=row.model,
            api_key=key, context_window=row.context_window, tools=row.tools, max_tokens=row.max_tokens,
        )  # fmt: skip

    def _environment_endpoint(self) -> Endpoint | None:
        key = self._environ.get("OPENAI_API_KEY", "").strip()
        url = self._environ.get("OPENAI_BASE_URL", "").strip()
        model = self._environ.get("OPENAI_MODEL", "").strip()
        if not model or not (key or url):
            return None
        return Endpoint(
            id=ENVIRONMENT_MODEL_ID, label=model, kind="endpoint", base_url=(url or DEFAULT_OPENAI_URL).rstrip("/"),
            model=model, api_key=key,
        )  # fmt: skip

    def _refresh(self) -> None:
        try:
            status = self._models_file.stat()
        except FileNotFoundError:
            self._stamp, self._rows, self._problems = None, [], []
            return
        except OSError as error:
            self._problems = [f"{self._models_file.name} cannot be read: {error.strerror}."]
            return
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        self._problems = []
        self._keep_private(status.st_mode)
        self._read()
        for problem in self._problems:
            _log.warning("%s", problem)

    def _keep_private(self, mode: int) -> None:
        if not stat.S_IMODE(mode) & 0o077:
            return
        try:
            os.chmod(self._models_file, 0o600)
            _log.warning("%s could be read by others on this machine; it is private now", self._models_file.name)
        except OSError:
            self._problems.append(
                f"{self._models_file.name} can be read by others on this machine; set its mode to 600."
            )

    def _read(self) -> None:
        """Read the file. On a fault in one entry the others count; on a fault of the file the last good one does."""
        try:
            content = tomllib.loads(self._models_file.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            self._problems.append(f"{self._models_file.name} cannot be read ({type(error).__name__}).")
            return
        except tomllib.TOMLDecodeError as error:
            where = re.search(r"\(at .*\)", str(error))  # the rest of the message may quote a key
            self._problems.append(
                f"{self._models_file.name} is not valid TOML {where[0] if where else ''}".strip() + "."
            )
            return
        rows: list[_ModelRow] = []
        for number, entry in enumerate(_entries(content), start=1):
            row = self._row(number, entry)
            if row is not None and self._is_new(row, rows):
                rows.append(row)
        if not content.get("models"):
            self._problems.append(f"{self._models_file.name} lists no models; {_EXAMPLE}.")
        self._rows = rows

    def _row(self, number: int, entry: Any) -> _ModelRow | None:
        try:
            return _ModelRow.model_validate(entry)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "entry"
            name = entry.get("id") if isinstance(entry, dict) else None
            which = f"model {name!r}" if isinstance(name, str) and len(name) <= 64 else f"model number {number}"
            self._problems.append(f"{self._models_file.name}, {which}: {where}: {first['msg']}.")
            return None

    def _is_new(self, row: _ModelRow, rows: list[_ModelRow]) -> bool:
        taken = {LOCAL_MODEL_ID, TOUR_MODEL_ID, ENVIRONMENT_MODEL_ID, *(other.id for other in rows)}
        if row.id in taken:
            self._problems.append(f"{self._models_file.name}: the id {row.id!r} is used twice or reserved.")
            return False
        if row.api_key_env and not row.api_key and not self._environ.get(row.api_key_env):
            self._problems.append(
                f"{self._models_file.name}, model {row.id!r}: the environment has no variable {row.api_key_env}."
            )
        return True


def _entries(content: dict[str, Any]) -> list[Any]:
    models = content.get("models")
    return models if isinstance(models, list) else []


def _choice(endpoint: Endpoint) -> ModelChoice:
    return ModelChoice(
        id=endpoint.id,
        label=endpoint.label,
        context_window=endpoint.context_window,
        tools=endpoint.tools,
        kind=endpoint.kind,
    )
