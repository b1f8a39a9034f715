"""Writes docs/promises.md: every promise of the specification, the contract, README and SECURITY, with its tests.

The promises stand in tests/acceptance/rules.yml. A test names one with `@pytest.mark.spec("...")` or
`@pytest.mark.contract("...")`; the others name their tests there. Where a test runs depends on the marker `long`.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import msgspec
from ruamel.yaml import YAML

PAGE = Path("docs/promises.md")
RULES = Path("tests/acceptance/rules.yml")
SHOWN = 3  # tests of one promise in the table
GATE, LONG = "`make check`", "`make check-long`"
HEAD = """<!-- Made from the code by `make docs`; change the code, not this page. -->

# Promises and their tests

For contributors and security reviewers. Every promise that Mailwarden makes, the tests that show it, and where they
run. `make docs` writes this page from `tests/acceptance/rules.yml` and the markers of the tests. A promise without a
test has its reason. `make check-long ONLY=breaks` breaks the product on purpose: do the tests notice? The numbers are
those of the specification's sections, and of the questions that it leaves open.
"""
TITLES = {
    "product": "README and SECURITY",
    "spec": "Specification",
    "contract": "Contract",
}


class Case(msgspec.Struct, frozen=True):
    """One test function, or one file of tests."""

    path: str
    name: str = ""
    long: bool = False

    @property
    def text(self) -> str:
        path = self.path.removeprefix("tests/")
        return f"`{path}::{self.name}`" if self.name else f"`{path}`"


class Promise(msgspec.Struct, frozen=True):
    """One promise with its tests, or with the reason why it has none."""

    section: str
    sentence: str
    cases: tuple[Case, ...]
    reason: str = ""

    @property
    def in_gate(self) -> bool:
        return any(not case.long for case in self.cases)


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(), "utf-8")
    return 0


def page() -> str:
    """Return the page as Markdown."""
    parts = [HEAD]
    for kind, title in TITLES.items():
        parts.append(f"\n## {title}\n| section | promise | tests | run by |\n|---|---|---|---|\n")
        parts += [_row(promise) for promise in promises(kind)]
    return "".join(parts)


def _row(promise: Promise) -> str:
    shown = sorted(set(promise.cases), key=lambda case: (case.long, case.path, case.name))
    tests = ", ".join(case.text for case in shown[:SHOWN]) or promise.reason
    more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    where = "" if not shown else GATE if promise.in_gate else LONG
    return f"| {promise.section} | {promise.sentence} | {tests}{more} | {where} |\n"


def promises(kind: str) -> Iterator[Promise]:
    """Yield the promises of one document in the order of the rules."""
    rules = YAML(typ="safe").load(RULES.read_text("utf-8"))[kind]
    cited = citations(kind)
    for section, sentence in rules["demanded"].items():
        yield Promise(section, sentence, tuple(cited.get(section, ())))
    for section, entry in rules["elsewhere"].items():
        cases = tuple(case_of(place) for place in entry.get("tests", ()))
        yield Promise(section, entry["rule"], (*cases, *cited.get(section, ())), entry.get("because", ""))


def case_of(place: str) -> Case:
    """Return the test that `path` or `path::name` names; raise ValueError if there is none."""
    path, _, name = place.partition("::")
    if not Path(path).exists():
        raise ValueError(f"{place}: no such file")
    if Path(path).is_dir():
        return Case(path)
    cases = tests_in(path)
    if not name:
        return Case(path, long=bool(cases) and all(case.long for case in cases))
    if not (named := [case for case in cases if case.name == name]):
        raise ValueError(f"{place}: no such test")
    return named[0]


def citations(kind: str) -> Mapping[str, list[Case]]:
    """Return the tests that name each promise by a marker of this kind; a table of cases counts for its file."""
    found: dict[str, list[Case]] = defaultdict(list)
    for path in sorted(map(str, Path("tests").rglob("test_*.py"))):
        if f"mark.{kind}(" not in Path(path).read_text("utf-8"):
            continue
        named: set[int] = set()
        for function in _functions(path):
            for node in function.decorator_list:
                for call, sections in _markers(node, kind):
                    named.add(id(call))
                    for section in sections:
                        found[section].append(Case(path, function.name, _is_long(path, function)))
        for call, sections in _markers(_tree(path), kind):
            for section in sections if id(call) not in named else ():
                found[section].append(case_of(path))
    return found


def tests_in(path: str) -> list[Case]:
    return [Case(path, each.name, _is_long(path, each)) for each in _functions(path) if each.name.startswith("test_")]


@cache
def _tree(path: str) -> ast.Module:
    return ast.parse(Path(path).read_text("utf-8"))


def _functions(path: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(_tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def _markers(tree: ast.AST, kind: str) -> Iterator[tuple[ast.Call, list[str]]]:
    """Yield each marker of this kind in a tree, with the sections that it names."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="mark"), attr=name), args=arguments):
                if name == kind:
                    yield node, [str(each.value) for each in arguments if isinstance(each, ast.Constant)]


def _is_long(path: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether the gate leaves the whole test out: by its marker, or by that of its file."""
    return any(map(_names_long, function.decorator_list)) or any(
        isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets)
        and any(map(_names_long, node.value.elts if isinstance(node.value, ast.List) else [node.value]))
        for node in _tree(path).body
    )


def _names_long(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "long"


if __name__ == "__main__":
    sys.exit(main())
