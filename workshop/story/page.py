"""Makes a story of recorded calls: the functions that one package calls in another, by their first call."""

import ast
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct

from workshop.story.runs import Call

SOURCE = Path("src/mailwarden")
# The ground of every part; no story is about it.
_GROUND = ("model/", "settings/", "telemetry/", "crypto/", "database/", "errors.py", "search/", "message/", "serving/")
# Packages that the stories are about: a call from one file to another is a step.
_NEAR = ("hop", "scan", "pipeline", "journal", "guard", "history", "quarantine", "lists")
_WIDTH = 52


class Step(Struct, frozen=True):
    """A function of the story."""

    file: str
    function: str

    @property
    def shown(self) -> str:
        return f"{self.file.removesuffix('.py')}: {self.function}"


def steps_of(calls: Sequence[Call], first: str, *, later: tuple[str, ...] = (), ggrid: str = "") -> list[Step]:
    """Return the functions that one package calls in another, from the function `first` on, each once.

    `later` are files whose steps have a task or a thread of their own: they do not say which message they are about.
    """
    begin = next(call for call in calls if call.name == first)
    steps = {first: Step(*first.split(":"))}
    for call in calls:
        file, function = call.name.split(":")
        ours = call.scan in (begin.scan, ggrid) if call.scan else file.startswith(later)
        inner = _package(call.name) == _package(call.caller) or function.rpartition(".")[2].startswith(("_", "<"))
        if call.moment >= begin.moment and ours and not inner and not file.startswith(_GROUND):
            steps.setdefault(call.name, Step(file, function))
    return [*steps.values()]


def _package(name: str) -> str:
    """Return the package of a function; each file of a package that the story is about counts as one."""
    package = name.partition("/")[0]
    return name.partition(":")[0] if package in _NEAR else package


def write_story(steps: Iterable[Step]) -> str:
    """Return a line for each step with a docstring: file, function, and the beginning of its first sentence."""
    return "\n".join(f"{step.shown:{_WIDTH}} {sentence}" for step in steps if (sentence := _sentence(step)))


def _sentence(step: Step) -> str:
    documents = _documents(step.file)
    document = documents.get(step.function) or documents.get(step.function.rpartition(".")[0], "")
    return re.split(r"[;:,(] |\. |\.$", " ".join(document.split("\n\n")[0].split()))[0]


@cache
def _documents(file: str) -> dict[str, str]:
    found: dict[str, str] = {}

    def look(node: ast.AST, outer: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found[outer + child.name] = ast.get_docstring(child) or ""
                within = "" if isinstance(child, ast.ClassDef) else "<locals>."
                look(child, f"{outer}{child.name}.{within}")
            else:
                look(child, outer)

    look(ast.parse((SOURCE / file).read_text("utf-8")), "")
    return found
