"""Every finding that a rule names is reported somewhere: a rule on any other would never match, unnoticed.

A name is written whole in the source (`"sender.free-mail"`), or as its second half in a file that reports under the
first half (`f"urls.{what}"`, `f"link-{how}"`), as a family of phrases, or as a list.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest
from ruamel.yaml import YAML

from mailwarden.analysis.analyzers.learned import _BANDS as BANDS
from mailwarden.lists.catalogue import CATALOGUE
from mailwarden.model.listing import ListHit
from mailwarden.policy.judge import RECOGNISED_BULK
from mailwarden.policy.list_effects import PROTECTED_SENDER, finding_name
from mailwarden.policy.rules import load_policy
from tests.conventions.project_files import SOURCE, parsed, python_files

NAME = re.compile(r"^[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*$")
HALF = re.compile(r"^[a-z0-9]+(-[a-z0-9]+)*$")
START = re.compile(r"^[a-z0-9]+(-[a-z0-9]+)*-$")  # f"spf-{result}"
BEGINS = re.compile(r"^([a-z]+)\.$")


def named_by_rules() -> set[str]:
    return {name for rule in load_policy().rules for name in (*rule.needs, *rule.any_of, *rule.unless)}


@cache
def reported() -> frozenset[str]:
    """Return every name that the source can report."""
    return frozenset({RECOGNISED_BULK, *_in_code(), *_in_data(), *_of_lists(), *_composed()})


def _in_code() -> Iterator[str]:
    for file in python_files("src"):
        if not file.is_relative_to(SOURCE) or file.relative_to(SOURCE).parts[0] == "policy":
            continue
        nodes = list(ast.walk(parsed(file)))
        texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        yield from filter(NAME.match, texts)
        heads = {match[1] for text in texts if (match := BEGINS.match(text))}
        halves = {text for text in texts if HALF.match(text)}
        starts = {text for text in texts if START.match(text)}
        halves |= {f"{start}{half}" for start in starts for half in halves}
        yield from (f"{head}.{half}" for head in heads for half in halves)


def _in_data() -> Iterator[str]:
    """Yield the families of phrases, and the names in other data files of the analyzers."""
    for file in sorted((*(SOURCE / "analysis").rglob("*.yml"), *(SOURCE / "engines").rglob("*.yml"))):
        data = YAML(typ="safe").load(file.read_text("utf-8"))
        yield from filter(NAME.match, _texts(data))
        if file.stem.endswith("_phrases") and isinstance(data, dict):
            analyzer = file.stem.removesuffix("_phrases")
            for family in _texts(data):
                if HALF.match(family):
                    yield from (f"{analyzer}.{family}", f"{analyzer}.{family}-often")


def _texts(data: object) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, list):
        for item in data:
            yield from _texts(item)
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _texts(key)
            yield from _texts(value)


def _of_lists() -> Iterator[str]:
    yield from (finding_name(ListHit(row.name, "")) for row in CATALOGUE)
    yield PROTECTED_SENDER


def _composed() -> Iterator[str]:
    """Yield the names whose second half has two variable parts, or a part of another file."""
    results = ("pass", "fail", "softfail", "neutral", "error", "none")  # SenderChecks in analysis/analyzer.py
    yield from (f"authentication.{check}-{result}" for check in ("spf", "dkim", "dmarc") for result in results)
    yield from (f"learned.{side}-{band}" for side in ("bad", "good") for _, band in BANDS)


def test_every_finding_that_a_rule_names_is_reported() -> None:
    assert sorted(named_by_rules() - reported()) == []


@pytest.mark.parametrize("name", ["urls.nobody-reports-this", "nobody.knows-this", "sender.free-mai"])
def test_a_name_that_nobody_reports_is_noticed(name: str) -> None:
    assert name not in reported()
