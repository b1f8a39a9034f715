"""All that the product knows of a list is its entry in the catalogue: other modules ask for a property, not a name."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailwarden.lists.catalogue import CATALOGUE
from tests.conventions.project_files import SOURCE

NAMES = re.compile(rf"(?<![\w-])(?:{'|'.join(each.name for each in CATALOGUE)})(?![\w-])")
# Modules with an example of a call, an event or a search.
EXAMPLES = {"events/catalogue.py", "lists/api.py", "console/audit_search.py", "console/screens/keys.py"}


def named_lists(source: str) -> Iterator[str]:
    """Yield the strings of a module that name a list. Sentences and commands, which have spaces, are for people."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and not re.search(r"\s", node.value):
            yield from (f"line {node.lineno}: {node.value}" for _ in NAMES.findall(node.value)[:1])


def modules() -> Iterator[Path]:
    for path in sorted(SOURCE.rglob("*.py")):
        if str(path.relative_to(SOURCE)) not in {"lists/catalogue.py", *EXAMPLES}:
            yield path


@pytest.mark.slow
def test_no_module_but_the_catalogue_names_a_list():
    found = [
        f"{path.relative_to(SOURCE)} {each}" for path in modules() for each in named_lists(path.read_text("utf-8"))
    ]
    assert found == [], "make what the module knows of the list a property of its entry in lists/catalogue.py"


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ('of("url-block")', 1),
        ('TAG = f"list.{name} list.url-block"; OTHER = "list.url-block"', 1),
        ('f"/console/lists/sender-allow?scope={uid}"', 1),
        ('"Add its hash to `file-hash-allow` and send it again."', 0),
        ('"url-blocked"', 0),
    ],
)
def test_names_are_found_but_not_in_sentences(source, number):
    assert len(list(named_lists(source))) == number
