"""The settings of the app: environment first, then `settings.toml` in the data folder, then defaults."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from chat_core.errors import SettingsError

Toolset = Literal["todo", "memory", "skills", "clarify", "terminal", "file"]

_EXAMPLES = {
    "port": "PARLEY_PORT=8501",
    "host": "PARLEY_HOST=127.0.0.1",
    "allowed_hosts": "PARLEY_ALLOWED_HOSTS=chat.example.com",
    "data_dir": "PARLEY_DATA_DIR=/srv/parley",
    "bridge_url": "PARLEY_BRIDGE_URL=http://127.0.0.1:8650",
    "bridge_token": "PARLEY_BRIDGE_TOKEN=<the token the Bridge was started with>",
    "hermes_home": "PARLEY_HERMES_HOME=/srv/parley/hermes",
    "max_active_runs": "PARLEY_MAX_ACTIVE_RUNS=50",
    "max_runs_per_user": "PARLEY_MAX_RUNS_PER_USER=5",
    "agent_pool": "PARLEY_AGENT_POOL=8",
    "toolsets": "PARLEY_TOOLSETS=todo,memory,skills,clarify,terminal",
    "bridge_grace_seconds": "PARLEY_BRIDGE_GRACE_SECONDS=600",
    "polling_tools": "PARLEY_POLLING_TOOLS=process,check_job",
    "log_retention_days": "PARLEY_LOG_RETENTION_DAYS=180",
    "log_level": "PARLEY_LOG_LEVEL=INFO",
}


class Settings(BaseSettings):
    """Read once at the start by `load_settings`; frozen afterwards."""

    model_config = SettingsConfigDict(env_prefix="PARLEY_", frozen=True, extra="ignore", env_ignore_empty=True)

    port: int = Field(default=8501, ge=1, le=65535)
    host: str = "127.0.0.1"
    allowed_hosts: str = ""
    """Further names, with commas, under which the app may be opened: a proxy's public name."""
    data_dir: Path = Path("data")
    bridge_url: str = ""
    bridge_token: SecretStr = SecretStr("")
    bridge_grace_seconds: float = Field(default=600.0, ge=0, le=86_400)
    """How long an embedded Bridge with work in hand outlives the app."""
    hermes_home: Path | None = None
    max_active_runs: int = Field(default=50, ge=1, le=1000)
    max_runs_per_user: int = Field(default=5, ge=1, le=1000)
    agent_pool: int = Field(default=8, ge=1, le=200)
    toolsets: str = "todo,memory,skills,clarify"
    polling_tools: str = "process"
    """Tools, separated by commas, that may repeat a call without counting as a loop in the statistics."""
    log_retention_days: int = Field(default=0, ge=0, le=36_500)
    """After so many days the record of a run (thinking, tools) goes; messages stay. 0: never."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"

    @field_validator("toolsets")
    @classmethod
    def _known_toolsets(cls, value: str) -> str:
        names = [name.strip() for name in value.split(",") if name.strip()]
        for name in names:
            if name not in get_args(Toolset):
                raise ValueError(f"there is no toolset {name!r}; choose from {', '.join(get_args(Toolset))}")
        return ",".join(names)

    @field_validator("bridge_url")
    @classmethod
    def _http_url(cls, value: str) -> str:
        if value and not value.startswith(("http://", "https://")):
            raise ValueError("it must start with http:// or https://")
        return value.rstrip("/")

    @property
    def hermes_folder(self) -> Path:
        return self.hermes_home or self.data_dir / "hermes"

    @property
    def database_file(self) -> Path:
        return self.data_dir / "parley.db"

    @property
    def models_file(self) -> Path:
        return self.data_dir / "models.toml"

    @property
    def logs_folder(self) -> Path:
        return self.data_dir / "logs"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        data_dir = Path(os.environ.get("PARLEY_DATA_DIR") or "data")
        return (init_settings, env_settings, TomlConfigSettingsSource(settings_cls, data_dir / "settings.toml"))


def load_settings(overrides: Mapping[str, Any] | None = None) -> Settings:
    """Read and check the settings. Raises `SettingsError` naming the setting, its problem and an example."""
    try:
        settings = Settings(**(overrides or {}))
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "?"
        problem = first["msg"].removeprefix("Value error, ")
        raise SettingsError(
            f"The setting PARLEY_{name.upper()} is wrong: {problem}. Example: {_EXAMPLES.get(name, '')}",
            setting=f"PARLEY_{name.upper()}",
        ) from None
    except ValueError as error:
        raise SettingsError(f"The file settings.toml in the data folder cannot be read: {error}") from None
    return settings.model_copy(update={"data_dir": settings.data_dir.absolute()})
