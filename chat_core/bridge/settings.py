"""The settings of the Bridge process, read from its environment once at the start."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from chat_core.errors import SettingsError

DEFAULT_TOOLSETS = ("todo", "memory", "skills", "clarify")


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    """`token` is what every caller must know. `environment` holds what the process was started with, for keys."""

    token: str = field(repr=False)
    host: str = "127.0.0.1"
    port: int = 0
    data_dir: Path = Path("data")
    hermes_home: Path = Path("data/hermes")
    models_file: Path = Path("data/models.toml")
    toolsets: tuple[str, ...] = DEFAULT_TOOLSETS
    agent_pool: int = 8
    max_active_runs: int = 50
    max_iterations: int = 60
    model_timeout_seconds: float = 180.0
    """How long a model may be silent before it is asked again, once."""
    model_retries: int = 3
    """How often a request is tried in all when the model answers with a passing error."""
    log_level: str = "INFO"
    grace_seconds: float | None = None
    """None: the Bridge never ends by itself."""
    ready_file: Path | None = None
    tour_pace_seconds: float = 0.03
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


def read_settings(environ: Mapping[str, str]) -> BridgeSettings:
    """Return the settings. Raises SettingsError naming the variable, the problem and an example."""
    token = environ.get("PARLEY_BRIDGE_TOKEN", "").strip()
    if not token:
        raise SettingsError("PARLEY_BRIDGE_TOKEN is not set; it is the secret the app shows to the Bridge")
    data_dir = Path(environ.get("PARLEY_DATA_DIR") or "data").expanduser().resolve()
    grace = environ.get("PARLEY_BRIDGE_GRACE_SECONDS", "").strip()
    ready_file = environ.get("PARLEY_BRIDGE_READY_FILE", "").strip()
    toolsets = environ.get("PARLEY_TOOLSETS", "").replace(",", " ").split()
    return BridgeSettings(
        token=token,
        host=environ.get("PARLEY_BRIDGE_HOST") or "127.0.0.1",
        port=_whole(environ, "PARLEY_BRIDGE_PORT", 0, 0, 65535),
        data_dir=data_dir,
        hermes_home=_path(environ, "PARLEY_HERMES_HOME", data_dir / "hermes"),
        models_file=_path(environ, "PARLEY_MODELS_FILE", data_dir / "models.toml"),
        toolsets=tuple(toolsets) or DEFAULT_TOOLSETS,
        agent_pool=_whole(environ, "PARLEY_AGENT_POOL", 8, 1, 1000),
        max_active_runs=_whole(environ, "PARLEY_MAX_ACTIVE_RUNS", 50, 1, 10_000),
        max_iterations=_whole(environ, "PARLEY_MAX_ITERATIONS", 60, 1, 500),
        model_timeout_seconds=_seconds(environ, "PARLEY_MODEL_TIMEOUT_SECONDS", 180.0),
        model_retries=_whole(environ, "PARLEY_MODEL_RETRIES", 3, 1, 10),
        log_level=_log_level(environ),
        grace_seconds=_seconds(environ, "PARLEY_BRIDGE_GRACE_SECONDS", 0.0) if grace else None,
        ready_file=Path(ready_file) if ready_file else None,
        tour_pace_seconds=_seconds(environ, "PARLEY_TOUR_PACE_SECONDS", 0.03),
        environment=dict(environ),
    )


def _path(environ: Mapping[str, str], name: str, default: Path) -> Path:
    value = environ.get(name, "").strip()
    return Path(value).expanduser().resolve() if value else default


def _whole(environ: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = environ.get(name, "").strip()
    if not text:
        return default
    if not text.isdigit() or not least <= int(text) <= most:
        raise SettingsError(f"{name} is {text!r}; it must be a number from {least} to {most}, for example {default}")
    return int(text)


def _seconds(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name, "").strip()
    if not text:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise SettingsError(f"{name} is {text!r}; it must be a number of seconds, for example {default or 60:g}")
    return seconds


def _log_level(environ: Mapping[str, str]) -> str:
    level = (environ.get("PARLEY_LOG_LEVEL") or "INFO").strip().upper()
    if level not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
        raise SettingsError(f"PARLEY_LOG_LEVEL is {level!r}; it must be debug, info, warning or error")
    return level
