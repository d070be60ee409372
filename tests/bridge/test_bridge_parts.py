"""Small parts of the Bridge that need no agent: settings, shipped skills, lifeline, redaction."""

import logging
from pathlib import Path

import pytest

from chat_core.bridge.lifeline import Lifeline
from chat_core.bridge.settings import DEFAULT_TOOLSETS, read_settings
from chat_core.bridge.skills import SHIPPED_FOLDER, sync_skills
from chat_core.errors import SettingsError
from chat_core.redaction import Redaction

# --- settings ---


def test_settings_have_defaults_and_follow_the_data_folder(tmp_path: Path) -> None:
    settings = read_settings({"PARLEY_BRIDGE_TOKEN": "secret-token", "PARLEY_DATA_DIR": str(tmp_path)})

    assert settings.hermes_home == tmp_path / "hermes"
    assert settings.models_file == tmp_path / "models.toml"
    assert settings.toolsets == DEFAULT_TOOLSETS == ("todo", "memory", "skills", "clarify")
    assert settings.grace_seconds is None
    assert "secret-token" not in repr(settings)


def test_toolsets_are_words_divided_by_commas_or_spaces() -> None:
    environ = {"PARLEY_BRIDGE_TOKEN": "t", "PARLEY_TOOLSETS": "todo, terminal file"}

    assert read_settings(environ).toolsets == ("todo", "terminal", "file")


@pytest.mark.parametrize(("name", "value"), [
    ("PARLEY_BRIDGE_TOKEN", " "), ("PARLEY_BRIDGE_PORT", "99999"), ("PARLEY_AGENT_POOL", "0"),
    ("PARLEY_MAX_ACTIVE_RUNS", "lots"), ("PARLEY_LOG_LEVEL", "loud"), ("PARLEY_BRIDGE_GRACE_SECONDS", "-1"),
    ("PARLEY_BRIDGE_GRACE_SECONDS", "nan"),
])  # fmt: skip
def test_a_wrong_setting_is_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        read_settings({"PARLEY_BRIDGE_TOKEN": "t", name: value})


# --- shipped skills ---


def shipped(folder: Path, text: str) -> Path:
    file = folder / "shipped" / "work" / "plan" / "SKILL.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return folder / "shipped"


def test_shipped_skills_are_copied_and_updated_but_never_over_what_a_user_changed(tmp_path: Path) -> None:
    copy = tmp_path / "home" / "skills" / "work" / "plan" / "SKILL.md"

    sync_skills(tmp_path / "home", shipped(tmp_path, "first"))
    assert copy.read_text() == "first"
    sync_skills(tmp_path / "home", shipped(tmp_path, "second"))
    assert copy.read_text() == "second"

    copy.write_text("mine")
    sync_skills(tmp_path / "home", shipped(tmp_path, "third"))
    assert copy.read_text() == "mine"


def test_a_skill_the_user_deleted_or_had_before_us_is_left_alone(tmp_path: Path) -> None:
    copy = tmp_path / "home" / "skills" / "work" / "plan" / "SKILL.md"
    copy.parent.mkdir(parents=True)
    copy.write_text("was here before")
    sync_skills(tmp_path / "home", shipped(tmp_path, "first"))
    assert copy.read_text() == "was here before"

    copy.unlink()
    sync_skills(tmp_path / "home", shipped(tmp_path, "first"))
    assert copy.read_text() == "first"
    copy.unlink()
    sync_skills(tmp_path / "home", shipped(tmp_path, "second"))
    assert not copy.exists()


def test_every_shipped_skill_says_its_name_and_what_it_is_for() -> None:
    files = sorted(SHIPPED_FOLDER.glob("*/*/SKILL.md"))

    assert len(files) >= 3
    for file in files:
        head = file.read_text("utf-8").split("---")[1]
        assert f"name: {file.parent.name}\n" in head
        assert "description: " in head


# --- lifeline ---


class Life:
    def __init__(self, grace_seconds: float | None) -> None:
        self.now = 0.0
        self.runs = 0
        self.line = Lifeline(grace_seconds, lambda: self.runs, lambda: self.now)

    def after(self, seconds: float) -> bool:
        self.now += seconds
        return self.line.is_over()


def test_an_embedded_bridge_ends_soon_after_its_app_when_nothing_runs() -> None:
    life = Life(grace_seconds=600)

    assert not life.after(14)
    life.line.contacted()
    assert not life.after(14)
    assert life.after(2)


def test_with_runs_it_waits_for_a_new_app_also_after_they_have_ended() -> None:
    life = Life(grace_seconds=600)
    life.runs = 1
    assert not life.after(20)
    life.runs = 0

    assert not life.after(500)
    assert life.after(100)


def test_after_a_contact_old_runs_do_not_count() -> None:
    life = Life(grace_seconds=600)
    life.runs = 1
    life.after(1)
    life.runs = 0
    life.line.contacted()

    assert life.after(16)


def test_an_external_bridge_never_ends_by_itself() -> None:
    assert not Life(grace_seconds=None).after(1e9)


# --- redaction ---


def test_keys_leave_messages_arguments_and_tracebacks() -> None:
    redaction = Redaction(["known-token"])
    redaction.also(lambda: ["later-key"])
    try:
        raise ValueError("with known-token inside")
    except ValueError as error:
        trouble = (type(error), error, error.__traceback__)
    record = logging.LogRecord("x", logging.ERROR, "f", 1, "%s and %s", ("later-key", "Bearer abc.def"), trouble)

    assert redaction.filter(record)

    written = logging.Formatter().format(record)
    for secret in ("known-token", "later-key", "abc.def"):
        assert secret not in written
    assert "ValueError" in written
