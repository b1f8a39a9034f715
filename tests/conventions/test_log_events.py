"""Log events: one style of names, and a row in docs/monitoring.md for each, with its levels."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from tests.conventions.project_files import ROOT, name_of, parsed, python_files

LOGGERS = {"log", "_log", "write"}  # `write` is a method of a logger, chosen by the state
LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "error": "error", "exception": "error"}
_SNAKE_CASE = re.compile(r"[a-z]+(?:_[a-z]+)*")
_ROW = re.compile(r"^\| `([^`]+)` \| ([a-z, ]+) \| [^|]+ \|$", re.MULTILINE)
_TEXT_FIELDS = {"problem", "why", "cause_text", "msg", "message"}  # `reason` is the name of the field
LIBRARIES = "src/mailwarden/telemetry/logs.py"  # passes lines of libraries on


def calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """Yield each call of a logger, with the method."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            if function.value.id in LOGGERS and function.attr in LEVELS:
                yield node, function.attr
        elif isinstance(function, ast.Name) and function.id == "write":
            yield node, ""


def chosen_levels(tree: ast.AST) -> set[str]:
    """Return the levels of `write = log.info if … else log.warning`."""
    return {
        LEVELS[branch.attr]
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.IfExp)
        for branch in (node.value.body, node.value.orelse)
        if isinstance(branch, ast.Attribute) and branch.attr in LEVELS
    }


def logging_files() -> list[Path]:
    """Return the files of the product that have a logger."""
    return [file for file in python_files("src") if "get_logger(" in file.read_text("utf-8")]


@functools.cache
def events() -> dict[str, set[str]]:
    """Return the levels of each event in the source."""
    found: dict[str, set[str]] = {}
    for file in logging_files():
        tree = parsed(file)
        for call, method in calls(tree):
            argument = call.args[0] if call.args else None
            assert isinstance(argument, ast.Constant), f"{name_of(file)}:{call.lineno}: the event is not a constant"
            levels = {LEVELS[method]} if method else chosen_levels(tree)
            found.setdefault(str(argument.value), set()).update(levels)
    return found


def test_every_event_is_in_snake_case() -> None:
    assert len(events()) > 60, "the source is read"
    assert [event for event in events() if not _SNAKE_CASE.fullmatch(event)] == []


def test_every_event_is_documented_with_its_levels() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text("utf-8")
    rows = {event: set(levels.split(", ")) for event, levels in _ROW.findall(page[page.index("### Events") :])}
    assert rows == events()
    assert list(rows) == sorted(rows)


def test_a_text_that_explains_an_event_is_its_reason() -> None:
    strange = [
        f"{name_of(file)}:{call.lineno}: {keyword.arg}"
        for file in logging_files()
        for call, _ in calls(parsed(file))
        for keyword in call.keywords
        if keyword.arg in _TEXT_FIELDS
    ]
    assert strange == []


def test_every_logger_has_one_of_the_names_that_are_checked() -> None:
    for file in logging_files():
        if name_of(file) != LIBRARIES:
            names = re.findall(r"^(\w+) = get_logger\(", file.read_text("utf-8"), re.MULTILINE)
            assert set(names) <= LOGGERS, name_of(file)


_GREP = re.compile(r"journalctl -u 'mailwarden-\*' -n \d+ \| grep (.+)")  # the units of one process, or of two


def test_every_search_of_a_runbook_finds_an_event() -> None:
    searches = [
        (page.name, word)
        for page in sorted((ROOT / "docs" / "runbooks").glob("*.md"))
        for words in _GREP.findall(page.read_text("utf-8"))
        for word in words.replace("-e ", "").split()
    ]
    assert len(searches) > 15, "the pages are read"
    assert [(page, word) for page, word in searches if not any(word in event for event in events())] == []
