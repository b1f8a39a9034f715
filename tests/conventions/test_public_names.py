"""No public name contains a word of `public_names.yml`: callers search for the words of the field."""

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from mailwarden.abby.endpoints import ENDPOINTS
from mailwarden.abby.openapi import describe
from mailwarden.access.permissions import KeyScope
from mailwarden.cli.main import COMMANDS, build_parser
from mailwarden.console.permissions import Permission
from mailwarden.console.request import MENU
from mailwarden.errors import MailwardenError
from mailwarden.events.catalogue import CATALOGUE
from mailwarden.policy.rules import load_policy
from tests.conventions.project_files import ROOT

TABLE = YAML(typ="safe").load(Path(__file__).with_name("public_names.yml").read_text("utf-8"))
CONSOLE = ROOT / "src" / "mailwarden" / "console"
PAGE = re.compile(r'Page\(\s*"[A-Z]+",\s*"(/[^"]*)"')
HEADING = re.compile(r'(?:block title %\}|header\(|class="card-title"[^>]*>|<h\d[^>]*>)\s*\{\{ _\("([^"]+)"')
PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def errors() -> Iterator[str]:
    pending: list[type[MailwardenError]] = [MailwardenError]
    while pending:
        error = pending.pop()
        pending.extend(error.__subclasses__())
        yield error.code


def fields() -> Iterator[str]:
    """Yield paths, operations, parameters, schemas, fields and enum values of the API, and the scopes of keys."""
    document = json.loads(describe(ENDPOINTS))
    yield from map(str, KeyScope)
    for path, operations in document["paths"].items():
        yield path
        for operation in operations.values():
            yield operation["operationId"]
            yield from (parameter["name"] for parameter in operation.get("parameters", ()) if "name" in parameter)
    for name, schema in document["components"]["schemas"].items():
        yield name
        yield from schema.get("properties", ())
        yield from map(str, schema.get("enum", ()))


def commands() -> Iterator[str]:
    """Yield every command and every option."""
    for name in COMMANDS:
        yield name
        pending: list[argparse.ArgumentParser] = [build_parser([name])]
        while pending:
            for action in pending.pop()._actions:
                yield from (option.lstrip("-") for option in action.option_strings)
                if isinstance(action, argparse._SubParsersAction):
                    yield from action.choices
                    pending.extend(action.choices.values())


def events() -> Iterator[str]:
    for event in CATALOGUE.values():
        yield event.type
        yield from event.__struct_encode_fields__


def screens() -> Iterator[str]:
    """Yield URLs, titles and headings of the console, and its permissions."""
    yield from map(str, Permission)
    yield from (entry.title for entry in MENU)
    for file in sorted((CONSOLE / "screens").glob("*.py")):
        yield from PAGE.findall(file.read_text("utf-8"))
    for file in sorted((CONSOLE / "templates").rglob("*.html")):
        yield from HEADING.findall(file.read_text("utf-8"))


def policy() -> Iterator[str]:
    """Yield tags, rule ids and findings."""
    shipped = load_policy()
    yield from shipped.tags
    for rule in shipped.rules:
        yield from (rule.id, *rule.needs, *rule.any_of, *rule.unless)


NAMES = {
    "errors": errors, "fields": fields, "commands": commands, "events": events, "screens": screens, "policy": policy,
}  # fmt: skip


def mistakes_in(names: Iterator[str]) -> Sequence[str]:
    found: dict[str, str] = {}
    for name in names:
        words = [] if name in TABLE["allowed"] else [part.lower() for part in PARTS.findall(name)]
        found.update((name, f"{word}: write {TABLE['never'][word]}") for word in words if word in TABLE["never"])
    return [f"{name}: {text}" for name, text in sorted(found.items())]


@pytest.mark.parametrize("kind", TABLE["checked"])
def test_no_public_name_has_a_word_that_is_never_said(kind: str) -> None:
    assert list(NAMES[kind]()), "nothing was checked"
    assert mistakes_in(NAMES[kind]()) == []


def test_a_name_is_split_into_its_words() -> None:
    assert mistakes_in(iter(["url.one-stranger", "takenByStranger", "strangerish", "protected-people"])) == [
        "takenByStranger: stranger: write unrelated, first contact",
        "url.one-stranger: stranger: write unrelated, first contact",
    ]
