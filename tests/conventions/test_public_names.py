"""No public name and no text of a screen has a word of `public_names.yml`: callers search for the terms of mail."""

import argparse
import importlib
import json
import pkgutil
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path

import pytest
from babel.messages.pofile import read_po
from ruamel.yaml import YAML

import mailwarden
from mailwarden.abby.endpoints import ENDPOINTS
from mailwarden.abby.openapi import describe
from mailwarden.access.permissions import KeyScope
from mailwarden.cli.main import COMMANDS, build_parser
from mailwarden.console.permissions import Permission
from mailwarden.errors import MailwardenError
from mailwarden.events.catalogue import CATALOGUE
from mailwarden.policy.rules import load_policy
from tests.conventions.project_files import ROOT

TABLE = YAML(typ="safe").load(Path(__file__).with_name("public_names.yml").read_text("utf-8"))
CONSOLE = ROOT / "src" / "mailwarden" / "console"
PATH = re.compile(r'"(/[a-z{][^"\s]*)"')
PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def errors() -> Iterator[str]:
    for module in pkgutil.walk_packages(mailwarden.__path__, "mailwarden."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    pending: list[type[MailwardenError]] = [MailwardenError]
    while pending:
        error = pending.pop()
        pending.extend(error.__subclasses__())
        yield error.code


def fields() -> Iterator[str]:
    """Yield paths, operations, parameters, headers, schemas, fields and values of the API, and the scopes of keys."""
    document = json.loads(describe(ENDPOINTS))
    yield from chain(map(str, KeyScope), document["paths"], document["components"]["schemas"])
    pending: list[object] = [document]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(node)
        elif isinstance(node, dict):
            pending.extend(node.values())
            yield from (node[key] for key in ("name", "operationId") if isinstance(node.get(key), str))
            yield from chain(*(node[key] for key in ("properties", "headers") if isinstance(node.get(key), dict)))
            yield from map(str, node["enum"] if isinstance(node.get("enum"), list) else ())


def commands() -> Iterator[str]:
    """Yield every command, every option, and what either accepts."""
    for name in COMMANDS:
        yield name
        pending: list[argparse.ArgumentParser] = [build_parser([name])]
        while pending:
            for action in pending.pop()._actions:
                yield from (option.lstrip("-") for option in action.option_strings)
                yield from map(str, chain(action.choices or (), [action.metavar] if action.metavar else ()))
                if isinstance(action, argparse._SubParsersAction):
                    pending.extend(action.choices.values())


def events() -> Iterator[str]:
    for event in CATALOGUE.values():
        yield event.type
        yield from event.__struct_encode_fields__


def screens() -> Iterator[str]:
    """Yield URLs of the console, and its permissions."""
    yield from map(str, Permission)
    for file in sorted(chain(CONSOLE.rglob("*.py"), CONSOLE.rglob("*.html"))):
        yield from PATH.findall(file.read_text("utf-8"))


def texts() -> Iterator[str]:
    """Yield every text of the console, and the sentences of tags."""
    with (CONSOLE / "translations" / "de.po").open("rb") as file:
        for message in read_po(file):
            yield from filter(None, message.id if isinstance(message.id, list | tuple) else [message.id])
    yield from load_policy().tags.values()


def policy() -> Iterator[str]:
    """Yield tags, rule ids and findings."""
    shipped = load_policy()
    yield from shipped.tags
    for rule in shipped.rules:
        yield from (rule.id, *rule.needs, *rule.any_of, *rule.unless)


NAMES = {
    "errors": errors, "fields": fields, "commands": commands, "events": events, "screens": screens, "policy": policy,
    "texts": texts,
}  # fmt: skip


def mistakes_in(names: Iterator[str], allowed: Collection[str] = ()) -> Sequence[str]:
    found: dict[str, str] = {}
    for name in names:
        words = (
            set() if name in TABLE["allowed"] else {part.lower() for part in PARTS.findall(name)}.difference(allowed)
        )
        found.update((name, f"{word}: write {TABLE['never'][word]}") for word in words & TABLE["never"].keys())
    return [f"{name}: {text}" for name, text in sorted(found.items())]


@pytest.mark.parametrize("kind", TABLE["checked"])
def test_no_public_name_has_a_word_that_is_never_said(kind: str) -> None:
    assert list(NAMES[kind]()), "nothing was checked"
    assert mistakes_in(NAMES[kind](), TABLE["in_texts"] if kind == "texts" else ()) == []


def test_a_name_is_split_into_its_words() -> None:
    assert mistakes_in(iter(["url.one-stranger", "takenByStranger", "strangerish", "protected-people"])) == [
        "takenByStranger: stranger: write unrelated, first contact",
        "url.one-stranger: stranger: write unrelated, first contact",
    ]
