"""Every file: short, headed by a sentence, named by its noun, and free of what belongs to one machine."""

import ast
import re
from collections.abc import Iterator

from tests.conventions.project_files import ROOT, name_of, parsed, python_files, tracked_files

CODE = python_files("src", "workshop")
MAX_LINES = 600
# Put together here, so that this file does not hold what it looks for.
FOREIGN = re.compile(
    "|".join(["/wo" + "rk/", "/ro" + "ot/", "py" + r"pi\.org", "python" + r"hosted\.org", "npm" + r"js\.org"])
)
NAMELESS = {"utils", "util", "helpers", "helper", "common", "misc"}


def test_every_file_of_code_is_headed_by_a_sentence() -> None:
    heads = {name_of(file): ast.get_docstring(parsed(file)) or "" for file in CODE}
    assert [name for name, head in heads.items() if not head.split("\n\n")[0].rstrip().endswith((".", "?", ":"))] == []


def test_no_file_of_code_is_longer_than_600_lines() -> None:
    lengths = {name_of(file): len(file.read_text("utf-8").splitlines()) for file in [*CODE, *python_files("tests")]}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES} == {}


def test_files_are_named_by_what_they_are() -> None:
    parts = {part for file in tracked_files() for part in file.relative_to(ROOT).with_suffix("").parts}
    assert parts & NAMELESS == set()
    assert [part for part in parts if part.endswith(("_utils", "_helpers", "_common"))] == []


def test_no_file_names_a_machine_or_a_package_registry() -> None:
    found = [name_of(file) for file in tracked_files() if FOREIGN.search(file.read_bytes().decode("utf-8", "ignore"))]
    assert found == []


def test_constants_stand_above_the_first_definition() -> None:
    """A constant in mid-file is the seam of two stories; one that is made of a class or function stands below it."""
    late = [f"{name_of(file)}:{node.lineno}" for file in python_files("src") for node in late_constants(parsed(file))]
    assert not late, "move it above the first definition, or cut the file where its story changes"


def late_constants(module: ast.Module) -> Iterator[ast.Assign | ast.AnnAssign]:
    """Yield the assignments behind a class or function that need none of those before them."""
    defined: set[str] = set()
    for node in module.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            defined.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and defined:
            names = {name.id: type(name.ctx) for name in ast.walk(node) if isinstance(name, ast.Name)}
            if defined.isdisjoint(names):
                yield node
            else:
                defined |= {name for name, context in names.items() if context is ast.Store}


BINARY = {".bin", ".ttf", ".png"}


def test_lists_are_called_block_and_allow() -> None:
    banned = re.compile("black" + "list|white" + "list", re.IGNORECASE)
    assert [
        name_of(file)
        for file in tracked_files()
        if "src" in file.parts
        and file.suffix not in (".bin", ".ttf", ".png")
        and banned.search(file.read_text("utf-8"))
    ] == []


def test_files_that_touch_hostile_bytes_say_so() -> None:
    hostile = [file for file in CODE if "message" in file.relative_to(ROOT).parts and file.name in HOSTILE]
    assert [name_of(file) for file in hostile if "\nSecurity:" not in (ast.get_docstring(parsed(file)) or "")] == []


HOSTILE = {"archives.py", "html.py", "headers.py", "parser.py", "structure.py", "urls.py"}
