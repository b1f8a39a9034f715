"""ECS events against the definitions that Elastic publishes; `make check-long ONLY=ecs` fetches them, runs this.

The package is @elastic/ecs (Apache-2.0). Its versions jump from 8.11 to 9.0. Version 9.0 has all fields and values of
8.17 that events use: a field that is missing or differs fails here.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mailwarden.event_delivery.formats import document_of
from mailwarden.event_delivery.model import Format
from mailwarden.events.catalogue import Event
from tests.tables import every
from tests.unit.event_delivery.ecs_fields import CATEGORIES, FIELDS, KINDS, LISTS, OUTCOMES
from tests.unit.event_delivery.test_formats import VARIANTS, flat, name

PACKAGE = os.environ.get("MAILWARDEN_ECS", "")
pytestmark = pytest.mark.skipif(not PACKAGE, reason="needs the package @elastic/ecs: `make check-long ONLY=ecs`")
PRINT = "process.stdout.write(JSON.stringify(require(process.argv[1]).EcsFlat))"
TEXTS = ("keyword", "constant_keyword", "match_only_text", "wildcard", "date", "ip")


@pytest.fixture(scope="module")
def published() -> Mapping[str, Any]:
    """Return every published field with its definition."""
    module = Path(PACKAGE).resolve() / "package" / "generated" / "ecs_flat.js"
    done = subprocess.run(["node", "-e", PRINT, str(module)], check=True, capture_output=True, timeout=60)
    fields: dict[str, Any] = json.loads(done.stdout)
    assert len(fields) > 1_000
    return fields


def allowed(field: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the allowed values of a field, each with the event types that go with it."""
    return {each["name"]: set(each.get("expected_event_types", ())) for each in field.get("allowed_values", ())}


def mistakes(fields: Mapping[str, Any], published: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the fields of one document."""
    for key, value in fields.items():
        if key not in published:
            yield f"{key} is no field of ECS"
            continue
        definition = published[key]
        if isinstance(value, list) != ("array" in definition["normalize"]):
            yield f"{key} must {'be' if 'array' in definition['normalize'] else 'not be'} a list"
        if definition["type"] not in TEXTS:
            yield f"{key} has the type {definition['type']}"
        for each in value if isinstance(value, list) else [value]:
            if definition["type"] == "ip":
                ip_address(each)
            if allowed(definition) and each not in allowed(definition):
                yield f"{key} cannot be {each}"
    categories = allowed(published["event.category"])
    for category in fields["event.category"]:
        yield from (f"{category} has no {kind}" for kind in fields["event.type"] if kind not in categories[category])


@pytest.mark.long
@pytest.mark.slow
def test_an_event_is_valid_by_the_published_definitions(published: Mapping[str, Any]) -> None:
    def check(event: Event) -> None:
        fields = dict(flat(msgspec.json.decode(msgspec.json.encode(document_of(Format.ECS, event)))))
        assert list(mistakes(fields, published)) == []
        broken = {**fields, "event.kind": "no kind", "no.field": "x", "tags": "no list"}
        assert len(list(mistakes(broken, published))) == 3, "the check can fail"

    every(VARIANTS, check, name)


@pytest.mark.long
@pytest.mark.slow
def test_our_table_of_fields_is_the_published_one(published: Mapping[str, Any]) -> None:
    """Compare the table that the tests without this package use."""
    assert {key: published[key]["type"] for key in FIELDS} == FIELDS
    assert {key for key in FIELDS if "array" in published[key]["normalize"]} == LISTS
    assert set(allowed(published["event.kind"])) >= KINDS
    assert set(allowed(published["event.outcome"])) == OUTCOMES
    categories = allowed(published["event.category"])
    assert {key: value for key, value in CATEGORIES.items() if not value <= categories[key]} == {}
