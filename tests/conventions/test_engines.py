"""Engines are replaceable: their names stand in their own modules, in rules and in configuration, and nowhere else."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailwarden.engines.engine import ConfirmingEngine, ScanEngine
from mailwarden.engines.table import ENGINES
from tests.conventions.project_files import SOURCE, name_of, parsed, python_files

HOME = SOURCE / "engines"
# The patterns of each scanning engine's names, by its type.
ENGINE_NAMES = {"rspamd": "rspamd", "clamav": "clamav|clamd"}
NAMES = re.compile("|".join(ENGINE_NAMES.values()), re.IGNORECASE)
# The scan source `rspamdApi` answers clients of Rspamd: its protocol has that name, whichever engine is asked.
SOURCE_NAMES = re.compile(r"rspamd_?(?:api|listener)", re.IGNORECASE)
PROTOCOL = {"guard/sources/rspamd_api.py", "guard/sources/rspamd_answer.py", "guard/config.py"}
DEMO = ("demo/", "cli/demo.py")  # it puts the sender checks of its stories in the place of Rspamd's
# The document that explains every key of the configuration is made from these texts.
DESCRIBED = {"guard/config.py": "answers clients of Rspamd"}


def words(file: Path) -> Iterator[str]:
    """Yield every name and every text in a file, without docstrings."""
    tree = parsed(file)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node) is not None
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str() | bytes() as text) if id(node) not in docstrings:
                yield text if isinstance(text, str) else text.decode("latin-1")
            case ast.Name(id=name) | ast.arg(arg=name) | ast.keyword(arg=str() as name) | ast.Attribute(attr=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ImportFrom(module=str() as name) | ast.alias(name=name):
                yield name


def named_in(file: Path) -> list[str]:
    place = file.relative_to(SOURCE).as_posix()
    if file.is_relative_to(HOME) or place in PROTOCOL or place.startswith(DEMO):
        return []
    allowed = DESCRIBED.get(place, "\0")
    return [word for word in words(file) if allowed not in word and NAMES.search(SOURCE_NAMES.sub("", word))]


@pytest.mark.slow
def test_no_code_outside_its_module_names_an_engine() -> None:
    found = {name_of(file): named_in(file) for file in python_files("src") if file.is_relative_to(SOURCE)}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize(
    "file", [file for file in sorted(HOME.glob("*.py")) if file.stem != "table"], ids=lambda file: file.stem
)
def test_each_engine_names_only_itself(file: Path) -> None:
    others = [pattern for name, pattern in ENGINE_NAMES.items() if not file.stem.startswith(name)]
    found = re.compile("|".join(others), re.IGNORECASE)
    assert [word for word in words(file) if found.search(word)] == []


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.type_name)
def test_an_engine_has_one_name_its_rules_and_its_samples(engine) -> None:
    assert issubclass(engine, ScanEngine | ConfirmingEngine), "nothing would ask it"
    assert engine.settings_type.__struct_config__.tag == engine.type_name
    if issubclass(engine, ScanEngine):
        assert engine.type_name in ENGINE_NAMES, "add the engine to ENGINE_NAMES in this file"
    assert engine.__module__ == f"mailwarden.engines.{engine.type_name}"
    assert (SOURCE / "policy" / "rules" / f"{engine.type_name}.yml").is_file(), "add rules for its findings"


def test_a_name_elsewhere_is_found(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text('"""Asks Rspamd."""\n\n\ndef accused(report):\n    return report.analyzer == "clamav"\n')
    assert [word for word in words(file) if NAMES.search(word)] == ["clamav"]
