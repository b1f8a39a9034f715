"""Limits: every bound in the readers comes from the table in `message/limits.py`, so that none stops in silence.

A cut that stops no inspection (what people are shown, the first bytes that tell a type) says so on its line:
`# shown: why` or `# not inspection: why`.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.conventions.project_files import ROOT, name_of, parsed, python_files

READERS = [
    file
    for file in python_files("src")
    if {"message", "analysis", "engines", "files", "pipeline"} & set(file.relative_to(ROOT).parts)
    and file.name != "limits.py"
]
NAMED_AS_LIMIT = re.compile(r"(^|_)(MAX|MOST|LONGEST|LIMIT|KEPT|ENOUGH|BUDGET)(_|$)")
REASON = re.compile(r"# (?:shown|not inspection): \S")
SHORT = 64  # a slice as short as this takes a field or a mark out of a known place


def test_no_reader_has_a_limit_of_its_own() -> None:
    found = [f"{name_of(file)}:{line}: {what}" for file in READERS for line, what in bounds_of(file)]
    assert found == []


def bounds_of(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the kind of every bound in a file that has no reason beside it."""
    lines = file.read_text("utf-8").splitlines()
    tree = parsed(file)
    numbers = _numbers(tree)
    for node in ast.walk(tree):
        if what := _bound(node, numbers):
            span = range(getattr(node, "lineno", 1), (getattr(node, "end_lineno", None) or 1) + 1)
            # The formatter puts a bracket, and the reason behind it, on the line after.
            if not any(REASON.search(line) for line in lines[span[0] - 1 : span[-1] + 1]):
                yield span[0], what


def _numbers(tree: ast.Module) -> dict[str, int]:
    """Return the module's own integers, by name."""
    found: dict[str, int] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            value = _integer(node.value)
            if value is not None:
                found[node.targets[0].id] = value
    return found


def _integer(node: ast.AST) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp):
        left, right = _integer(node.left), _integer(node.right)
        if left is not None and right is not None:
            return left * right if isinstance(node.op, ast.Mult) else left << min(right, 64)
    return None


def _bound(node: ast.AST, numbers: dict[str, int]) -> str:
    """Say what kind of bound a node is, or nothing."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
        if _integer(node.value) is not None and NAMED_AS_LIMIT.search(name):
            return f"{name} belongs into the table of limits"
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and node.slice.upper is not None:
        size = _size(node.slice.upper, numbers)
        begins = node.slice.lower is None or _integer(node.slice.lower) == 0
        if begins and size is not None and size > SHORT:
            return f"a slice ends at {size}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "islice":
        ends = any(_size(argument, numbers) is not None for argument in node.args[1:])
        return "islice ends at a number" if ends else ""
    return ""


def _size(node: ast.AST, numbers: dict[str, int]) -> int | None:
    return numbers.get(node.id) if isinstance(node, ast.Name) else _integer(node)
