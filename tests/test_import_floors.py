"""The import rule: the fenced lists in docs/ARCHITECTURE.md are the truth, every file is held to them."""

import ast
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PROJECT_FOLDER = Path(__file__).resolve().parents[1]
ARCHITECTURE = PROJECT_FOLDER / "docs" / "ARCHITECTURE.md"
OURS = {"chat_core", "pages", "app"}
PACKAGES_WITHOUT_CODE = {"chat_core", "chat_core.bridge"}
NOT_IN_THE_BRIDGE = {"streamlit", "streamlit_extras", "sqlite_utils", "duckdb", "pydantic_settings", "pandas"}
MAY_USE_STREAMLIT = ("chat_core.ui", "pages", "app")


@dataclass(frozen=True)
class Rule:
    """Which floor each module prefix stands on, which prefixes are the other process, which stand alone."""

    floors: dict[str, int]
    bridge: set[str] = field(default_factory=set)
    alone: set[str] = field(default_factory=set)

    def place_of(self, module: str) -> tuple[str, int]:
        """Return `("floor", n)`, `("bridge", 0)` or `("alone", 0)`, by the longest prefix listed."""
        parts = module.split(".")
        for end in range(len(parts), 0, -1):
            prefix = ".".join(parts[:end])
            if prefix in self.floors:
                return "floor", self.floors[prefix]
            if prefix in self.bridge:
                return "bridge", 0
            if prefix in self.alone:
                return "alone", 0
        raise LookupError(f"{module} stands on no floor: add it to docs/ARCHITECTURE.md")

    def broken_by(self, module: str, imported: str) -> str:
        """Say why `module` may not import `imported`; empty when it may."""
        top = imported.split(".", maxsplit=1)[0]
        place, floor = self.place_of(module)
        if place == "alone" and top not in sys.stdlib_module_names:
            return "it stands alone: standard library only"
        if top in {"streamlit", "streamlit_extras"} and not module.startswith(MAY_USE_STREAMLIT):
            return "Streamlit belongs to chat_core.ui, pages and app"
        if place == "bridge" and top in NOT_IN_THE_BRIDGE:
            return "the Bridge's environment does not have it"
        if top not in OURS or imported in PACKAGES_WITHOUT_CODE:
            return ""
        if top in {"pages", "app"} and top != module.split(".", maxsplit=1)[0]:
            return "nothing is imported from pages"
        other_place, other_floor = self.place_of(imported)
        if place == "bridge":
            if other_place == "bridge" or (other_floor == 0 and imported != "chat_core.config"):
                return ""
            return "the Bridge imports floor 0 only, and not config"
        if other_place != "floor":
            return "it belongs to the other process, or stands alone"
        return "" if other_floor <= floor else f"floor {floor} may not import from floor {other_floor}"


def read_rule(text: str) -> Rule:
    floors: dict[str, int] = {}
    for line in _fenced(text, "floors").splitlines():
        number, *prefixes = line.split()
        floors.update(dict.fromkeys(prefixes, int(number)))
    return Rule(floors, set(_fenced(text, "bridge").split()), set(_fenced(text, "alone").split()))


def _fenced(text: str, name: str) -> str:
    found = re.search(rf"^```{name}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert found, f"docs/ARCHITECTURE.md has no list {name!r}"
    return found[1]


def source_files() -> list[Path]:
    folders = [PROJECT_FOLDER / "chat_core", PROJECT_FOLDER / "pages"]
    files = [file for folder in folders for file in folder.rglob("*.py")]
    app = PROJECT_FOLDER / "app.py"
    return sorted(files + ([app] if app.exists() else []))


def module_of(file: Path) -> str:
    parts = list(file.relative_to(PROJECT_FOLDER).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(file: Path) -> list[tuple[int, str]]:
    """Return line and full name of everything the file imports, also inside functions."""
    module = module_of(file)
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    found: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, name.name) for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parent, *([base] if base else [])])
            found += [(node.lineno, _module_or_name(base, name.name)) for name in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"importlib.import_module", "import_module"}:
            found += [(node.lineno, arg.value) for arg in node.args[:1] if _is_text(arg)]
    return found


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _module_or_name(base: str, name: str) -> str:
    """`from chat_core.bridge import client` imports a module, `from chat_core.errors import X` a name of one."""
    path = PROJECT_FOLDER.joinpath(*base.split("."), name)
    return f"{base}.{name}" if path.with_suffix(".py").exists() or (path / "__init__.py").exists() else base


RULE = read_rule(ARCHITECTURE.read_text("utf-8"))


@pytest.mark.parametrize("file", source_files(), ids=module_of)
def test_a_file_imports_only_from_its_own_floor_and_those_above(file: Path) -> None:
    module = module_of(file)
    broken = [
        f"line {line}: {imported}: {reason}"
        for line, imported in imports_of(file)
        if (reason := RULE.broken_by(module, imported)) and module not in PACKAGES_WITHOUT_CODE
    ]
    assert broken == []


@pytest.mark.parametrize("file", [file for file in source_files() if "chat_core" in file.parts], ids=module_of)
def test_nothing_happens_at_import(file: Path) -> None:
    """A cheap check: outside functions and classes there are only definitions, never a call for its effect."""
    harmless = (
        ast.Import,
        ast.ImportFrom,
        ast.FunctionDef,
        ast.AsyncFunctionDef,
        ast.ClassDef,
        ast.Assign,
        ast.AnnAssign,
    )
    acting = [
        f"line {node.lineno}: {ast.unparse(node).splitlines()[0]}"
        for node in ast.parse(file.read_text("utf-8")).body
        if not isinstance(node, harmless)
        and not (isinstance(node, ast.Expr) and _is_text(node.value))
        and not (isinstance(node, ast.If) and re.search("TYPE_CHECKING|__name__", ast.unparse(node.test)))
    ]
    assert acting == []


@pytest.mark.parametrize("name", sorted({*RULE.floors, *RULE.bridge, *RULE.alone}))
def test_what_the_lists_name_exists(name: str) -> None:
    path = PROJECT_FOLDER.joinpath(*name.split("."))
    assert path.is_dir() or path.with_suffix(".py").exists()


@pytest.mark.parametrize(
    ("module", "imported", "allowed"),
    [
        ("chat_core.store.runs", "chat_core.models", True),
        ("chat_core.store.runs", "chat_core.store.sessions", True),
        ("chat_core.store.runs", "chat_core.event_bus", False),
        ("chat_core.errors", "chat_core.store", False),
        ("chat_core.runner", "streamlit", False),
        ("chat_core.ui.sidebar", "streamlit", True),
        ("chat_core.ui.sidebar", "chat_core.workbench", True),
        ("chat_core.ui.sidebar", "pages.chat", False),
        ("chat_core.runner", "chat_core.bridge.server", False),
        ("chat_core.bridge.server", "chat_core.bridge.protocol", True),
        ("chat_core.bridge.server", "chat_core.config", False),
        ("chat_core.bridge.server", "chat_core.store", False),
        ("chat_core.bridge.server", "sqlite_utils", False),
        ("chat_core.bridge.client", "chat_core.config", True),
        ("chat_core.launcher", "json", True),
        ("chat_core.launcher", "chat_core.errors", False),
        ("chat_core.workbench", "chat_core.launcher", False),
    ],
)
def test_the_rule_tells_right_from_wrong(module: str, imported: str, allowed: bool) -> None:
    assert (RULE.broken_by(module, imported) == "") is allowed


def test_a_module_on_no_floor_is_found() -> None:
    with pytest.raises(LookupError, match="stands on no floor"):
        RULE.place_of("chat_core.helpers")
