"""No rule without a test, and no citation of a rule that does not exist."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from mailwarden.serving.errors import STATUS_OF

HERE = Path(__file__).parent
RULES = YAML(typ="safe").load((HERE / "rules.yml").read_text("utf-8"))


def citations(kind: str) -> Iterator[tuple[str, str]]:
    """Find every `pytest.mark.<kind>("...")` of this folder, with the file that it stands in."""
    for path in sorted(HERE.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="mark"), attr=name), args=arguments):
                    if name == kind:
                        assert arguments, f"{path.name}:{node.lineno} cites nothing"
                        for argument in arguments:
                            assert isinstance(argument, ast.Constant), f"{path.name}:{node.lineno} cites no plain text"
                            yield str(argument.value), f"{path.name}:{node.lineno}"


@pytest.mark.parametrize("kind", ["spec", "contract"])
def test_every_rule_is_cited_by_a_test(kind):
    cited = {rule for rule, _ in citations(kind)}

    assert [f"{rule}: {text}" for rule, text in RULES[kind]["demanded"].items() if rule not in cited] == []


@pytest.mark.parametrize("kind", ["spec", "contract"])
def test_every_citation_names_a_rule(kind):
    known = {*RULES[kind]["demanded"], *RULES[kind]["elsewhere"]}

    assert [f"{place} cites {rule!r}" for rule, place in citations(kind) if rule not in known] == []


@pytest.mark.parametrize("kind", ["spec", "contract"])
def test_a_rule_without_a_test_has_a_reason(kind):
    for rule, entry in RULES[kind]["elsewhere"].items():
        assert rule not in RULES[kind]["demanded"]
        assert entry["rule"]
        assert entry.get("because") or entry["tests"]


def test_every_error_that_the_product_can_answer_is_a_rule():
    known = {*RULES["contract"]["demanded"], *RULES["contract"]["elsewhere"]}

    assert [error.code for error in STATUS_OF if f"5 {error.code}" not in known] == []
