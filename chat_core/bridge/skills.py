"""Brings the shipped skills into the agent's home and lists what skills there are."""

import hashlib
import json
import logging
import os
from pathlib import Path

from chat_core.bridge.protocol import SkillChoice
from chat_core.bridge.runtimes.hermes.engine import Engine

SHIPPED_FOLDER = Path(__file__).with_name("shipped_skills")
_RECORD_NAME = ".parley-shipped.json"

_log = logging.getLogger("parley.bridge.skills")


def sync_skills(home: Path, shipped: Path = SHIPPED_FOLDER) -> None:
    """Copy our skills into `<home>/skills`, newer versions too; what a user changed or deleted is left alone."""
    target = home / "skills"
    target.mkdir(parents=True, exist_ok=True, mode=0o700)
    record_file = target / _RECORD_NAME
    record = _read_record(record_file)
    for source in sorted(shipped.glob("*/*/SKILL.md")):
        name = source.relative_to(shipped).as_posix()
        ours = source.read_bytes()
        if _is_users(target / name, record.get(name)):
            continue
        _write(target / name, ours)
        record[name] = _digest(ours)
    _write(record_file, json.dumps(record, indent=1, sort_keys=True).encode())


def list_skills(engine: Engine) -> list[SkillChoice]:
    """Return the skills of hermes-agent's own index; `folder` is what a run names to use one."""
    found = engine.skills._sort_skills(engine.skills._find_all_skills())
    return [
        SkillChoice(folder=str(skill["name"]), name=str(skill["name"]), description=str(skill.get("description") or ""))
        for skill in found
    ]


def _is_users(file: Path, recorded: str | None) -> bool:
    """Tell whether the file is no longer, or never was, what we wrote."""
    try:
        return _digest(file.read_bytes()) != recorded
    except FileNotFoundError:
        return recorded is not None
    except OSError:
        return True


def _read_record(file: Path) -> dict[str, str]:
    try:
        record = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        _log.warning("%s cannot be read; shipped skills that are there already are left as they are", file.name)
        return {}
    return {str(key): str(value) for key, value in record.items()} if isinstance(record, dict) else {}


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = file.with_name(file.name + ".new")
    draft.write_bytes(content)
    os.replace(draft, file)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
