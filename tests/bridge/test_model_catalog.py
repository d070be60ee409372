"""The models of the Bridge: the file, the environment, the built-in ones."""

import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from chat_core.bridge.model_catalog import LocalModelFailed, ModelCatalog
from chat_core.errors import NotFound

ENTRY = '[[models]]\nid = "one"\nlabel = "One"\nbase_url = "https://one.example/v1/"\nmodel = "one-large"\n'


class FakeLocalModel:
    api_key = "local-key"
    model_name = "gemma"

    def __init__(self, reason: str | None = None, failure: str = "") -> None:
        self.reason = reason
        self.failure = failure

    def base_url(self) -> str:
        if self.failure:
            raise RuntimeError(self.failure)
        return "http://127.0.0.1:9999/v1"

    def available(self) -> str | None:
        return self.reason


def catalog(
    folder: Path, text: str | None = None, environ: Mapping[str, str] | None = None, local: FakeLocalModel | None = None
) -> ModelCatalog:
    if text is not None:
        (folder / "models.toml").write_text(text)
    tour = {"tour_url": "http://127.0.0.1:1/tour/v1", "tour_key": "tour-key"}
    return ModelCatalog(folder / "models.toml", environ or {}, local or FakeLocalModel(), **tour)


def ids(models: ModelCatalog) -> list[str]:
    return [choice.id for choice in models.choices()]


def test_without_a_file_the_built_in_models_are_there_and_the_local_one_is_the_default(tmp_path: Path) -> None:
    models = catalog(tmp_path)

    assert ids(models) == ["local", "tour"]
    assert [choice.id for choice in models.choices() if choice.is_default] == ["local"]
    assert models.endpoint("").id == "local"
    assert models.endpoint("local").tools is False
    assert models.endpoint("tour").kind == "tour"
    assert models.problems() == []


def test_the_first_entry_of_the_file_is_the_default_then_the_environment(tmp_path: Path) -> None:
    environ = {"OPENAI_API_KEY": "sk-env", "OPENAI_MODEL": "gpt"}

    assert catalog(tmp_path, ENTRY, environ).endpoint("").id == "one"
    by_environment = catalog(tmp_path, "", environ).endpoint("")

    assert (by_environment.id, by_environment.base_url, by_environment.model, by_environment.api_key) == (
        "openai-env", "https://api.openai.com/v1", "gpt", "sk-env"
    )  # fmt: skip


def test_a_key_comes_from_the_file_or_from_the_named_variable(tmp_path: Path) -> None:
    text = ENTRY + 'api_key = "sk-file"\n' + ENTRY.replace('"one"', '"two"') + 'api_key_env = "TWO_KEY"\n'

    models = catalog(tmp_path, text, {"TWO_KEY": "sk-two"})

    assert models.endpoint("one").api_key == "sk-file"
    assert models.endpoint("two").api_key == "sk-two"
    assert models.endpoint("one").base_url == "https://one.example/v1"
    assert {"sk-file", "sk-two"} <= set(models.secrets())
    assert "TWO_KEY" in models.key_variables()


def test_a_missing_variable_is_a_problem_that_names_it(tmp_path: Path) -> None:
    assert "TWO_KEY" in " ".join(catalog(tmp_path, ENTRY + 'api_key_env = "TWO_KEY"\n').problems())


def test_the_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    models = catalog(tmp_path, ENTRY)
    assert ids(models)[0] == "one"

    (tmp_path / "models.toml").write_text(ENTRY.replace('"one"', '"changed"'))
    assert ids(models)[0] == "changed"

    (tmp_path / "models.toml").unlink()
    assert ids(models) == ["local", "tour"]


@pytest.mark.parametrize(("lines", "reason"), [
    ('id = "x"\nmodel = "m"\n', "base_url"),
    ('id = "x"\nbase_url = "one.example"\nmodel = "m"\n', "must be an address"),
    ('id = "x"\nbase_url = "https://me:secret-word@one.example"\nmodel = "m"\n', "user name or password"),
    ('id = "x"\nbase_url = "https://one.example"\nmodel = "m"\nkontext = 5\n', "kontext"),
    ('id = "a b"\nbase_url = "https://one.example"\nmodel = "m"\n', "id"),
    ('id = "tour"\nbase_url = "https://one.example"\nmodel = "m"\n', "reserved"),
    ('id = "one"\nbase_url = "https://one.example"\nmodel = "m"\n', "used twice"),
    ('id = "x"\nbase_url = "https://one.example"\nmodel = "m"\ncontext_window = "big"\n', "context_window"),
])  # fmt: skip
def test_a_wrong_entry_is_told_without_secrets_and_the_others_work(tmp_path: Path, lines: str, reason: str) -> None:
    models = catalog(tmp_path, f'{ENTRY}[[models]]\napi_key = "sk-secret-word"\n{lines}')

    assert ids(models) == ["one", "local", "tour"]
    assert reason in " ".join(models.problems())
    assert "secret-word" not in " ".join(models.problems())


def test_a_file_that_is_no_toml_keeps_the_last_good_models(tmp_path: Path) -> None:
    models = catalog(tmp_path, ENTRY)
    assert ids(models)[0] == "one"

    (tmp_path / "models.toml").write_text(ENTRY + 'api_key = "sk-secret-word\n')

    assert ids(models)[0] == "one"
    assert "not valid TOML" in models.problems()[0]
    assert "secret-word" not in models.problems()[0]

    (tmp_path / "models.toml").write_text(ENTRY + "\n")
    assert models.problems() == []


def test_a_file_that_others_can_read_is_made_private(tmp_path: Path) -> None:
    models = catalog(tmp_path, ENTRY)
    (tmp_path / "models.toml").chmod(0o644)

    models.choices()

    assert stat.S_IMODE((tmp_path / "models.toml").stat().st_mode) == 0o600


def test_an_unknown_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="'gone'"):
        catalog(tmp_path).endpoint("gone")


def test_a_local_model_that_cannot_be_used_is_not_offered_and_says_why(tmp_path: Path) -> None:
    models = catalog(tmp_path, local=FakeLocalModel("It is not installed."))

    assert ids(models) == ["tour"]
    assert models.endpoint("").id == "tour"
    assert "It is not installed." in models.problems()
    with pytest.raises(LocalModelFailed, match="not installed"):
        models.endpoint("local")


def test_a_local_model_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(LocalModelFailed, match="no room"):
        catalog(tmp_path, local=FakeLocalModel(failure="There is no room for it.")).endpoint("local")


def test_a_key_is_never_in_the_words_for_an_endpoint(tmp_path: Path) -> None:
    assert "sk-file" not in repr(catalog(tmp_path, ENTRY + 'api_key = "sk-file"\n').endpoint("one"))
