"""Patterns of the product: none depends on possessive quantifiers or atomic groups, which some Pythons get wrong.

Python 3.11.2 of Debian 12 before deb12u9 never matches some of them inside repeated groups, without an error.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from re import _constants as constants
from re import _parser as parser

import pytest

from tests.conventions.project_files import name_of, parsed, python_files

POSSESSIVE = (constants.POSSESSIVE_REPEAT, constants.ATOMIC_GROUP)
# For a string that is a piece of a pattern and cannot be parsed alone: a class, an escape, or the thing itself.
PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(?P<found>(?:[*+?]|\{\d*,?\d*\})\+|\(\?>)", re.DOTALL)


def is_possessive(text: str) -> bool:
    """Tell whether a text, taken as a pattern, has a possessive quantifier or an atomic group."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return any(_nodes(parser.parse(text)))
    except (re.error, OverflowError, RecursionError):
        return "(" in text and any(match["found"] for match in PIECE.finditer(text))


def _nodes(tree: object) -> Iterator[object]:
    if isinstance(tree, parser.SubPattern | list | tuple):
        for each in tree:
            yield from _nodes(each)
    elif any(tree is kind for kind in POSSESSIVE):
        yield tree


def _texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield every string of a file with its line; what an f-string puts in counts as one letter."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            value = node.value
            yield node.lineno, value if isinstance(value, str) else value.decode("latin-1")


@pytest.mark.slow
def test_no_pattern_is_possessive_or_atomic() -> None:
    files = python_files("src")
    found = [f"{name_of(file)}:{line}" for file in files for line, text in _texts(parsed(file)) if is_possessive(text)]
    assert found == [], "use RE2, or a pattern that needs no backtracking"


@pytest.mark.parametrize(
    "text", ["a++", "(?:a|b)*+c", r"\s{0,3}+=", "a?+", "x(?>ab)", "(?:[^()]*+", "[^]]++)(", r"(?P<a>x{2,}+"]
)
def test_possessive_patterns_are_recognised(text: str) -> None:
    assert is_possessive(text)


@pytest.mark.parametrize("text", ["?*+{", r"[*+]+", r"\++", "[a-z+.]{2}", "1 + 1", r"[^\]*+]+x", r"(?:[\]*+]"])
def test_other_patterns_are_not(text: str) -> None:
    assert not is_possessive(text)
