"""Every event type of the catalogue in every format, valid against the published schemas."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from ipaddress import ip_address
from typing import Any
from uuid import UUID

import msgspec
import pytest
from jsonschema_rs import Draft202012Validator
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema

from mailwarden.event_delivery.formats import document_of, ecs, ocsf, severity_of
from mailwarden.event_delivery.model import Format
from mailwarden.events.catalogue import CATALOGUE, Event, schemas
from mailwarden.model.outcome import Decision, Verdict
from tests.tables import every
from tests.unit.event_delivery.ecs_fields import CATEGORIES, DATE, FIELDS, IP, KINDS, LISTS, OUTCOMES, REQUIRED
from workshop.pages.event_examples import examples

EXAMPLES = examples()


def variants() -> Iterator[Event]:
    """Yield an example of each type, judged messages with each verdict and decision, and events with little data."""
    yield from EXAMPLES
    for event in EXAMPLES:
        if event.type == "message.scanned":
            for verdict in Verdict:
                for decision in Decision:
                    yield replace(event, data={**event.data, "verdict": verdict.value, "decision": decision.value})
        yield replace(event, tenant=None, data={key: _least(key, value) for key, value in event.data.items()})


def _least(key: str, value: object) -> object:
    """Return the least value that the type of a field allows: unknown senders, no recipients, null."""
    if key in ("sender", "fromAddress", "subject", "messageId", "detail", "by"):
        return ""
    if key in ("user", "address", "remoteAddress", "campaign"):
        return None
    return [] if isinstance(value, list | tuple) else value


VARIANTS = list(variants())


def name(event: Event) -> str:
    return f"{event.type} {event.data.get('verdict', '')} {event.data.get('decision', '')} {bool(event.tenant)}"


def test_every_type_has_an_example_and_a_row_in_every_format() -> None:
    assert {event.type for event in EXAMPLES} == set(CATALOGUE)
    assert set(CATALOGUE) <= set(ocsf.TABLE)
    assert set(CATALOGUE) <= set(ecs.TABLE)


@cache
def ocsf_schema() -> OcsfJsonSchemaEmbedded:
    return OcsfJsonSchemaEmbedded(get_ocsf_schema(version=ocsf.VERSION))


@cache
def ocsf_validator(class_uid: int, profiles: tuple[str, ...]) -> Draft202012Validator:
    schema = ocsf_schema()
    found = schema.lookup_class_name_from_uid(class_uid)
    return Draft202012Validator(schema.get_class_schema(class_name=found, profiles=list(profiles)))


@pytest.mark.slow
def test_an_ocsf_event_is_valid_against_the_published_schema() -> None:
    def check(event: Event) -> None:
        document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document_of(Format.OCSF, event)))
        profiles = tuple(document["metadata"].get("profiles", ()))
        problems = [
            f"{'.'.join(map(str, error.instance_path))}: {error.message[:300]}"
            for error in ocsf_validator(document["class_uid"], profiles).iter_errors(document)
        ]
        assert problems == []
        assert document["type_uid"] == document["class_uid"] * 100 + document["activity_id"]
        assert document["metadata"]["version"] == ocsf.VERSION
        _check_names(document)

    every(VARIANTS, check, name)


def _check_names(document: Mapping[str, Any]) -> None:
    """Check that every name beside an id is the one that the schema has for it."""
    schema = get_ocsf_schema(version=ocsf.VERSION)
    found = schema["classes"][ocsf_schema().lookup_class_name_from_uid(document["class_uid"])]
    assert (document["class_name"], document["category_name"]) == (found["caption"], found["category_name"])
    for key, beside in (
        ("activity_id", "activity_name"),
        ("severity_id", "severity"),
        ("action_id", "action"),
        ("disposition_id", "disposition"),
        ("direction_id", "direction"),
        ("status_id", "status"),
    ):
        if key in document and document[key] != 99:
            assert document[beside] == found["attributes"][key]["enum"][str(document[key])]["caption"], key


def test_an_ocsf_event_without_a_required_attribute_is_invalid() -> None:
    held = next(event for event in EXAMPLES if event.type == "message.held")
    document = dict(document_of(Format.OCSF, held))
    del document["email"]
    assert list(ocsf_validator(4009, ("security_control",)).iter_errors(document))


def test_an_address_that_ocsf_does_not_allow_is_a_mailbox() -> None:
    held = next(event for event in EXAMPLES if event.type == "message.held")
    odd = {"fromAddress": "müller@sender.example", "recipients": ["anna@customer.example", "postmaster"], "sender": ""}
    email = document_of(Format.OCSF, replace(held, data={**held.data, **odd}))["email"]
    assert isinstance(email, dict)
    assert (email["from_mailbox"], email["to"]) == ("müller@sender.example", ["anna@customer.example"])
    assert email["to_mailboxes"] == ["postmaster"]
    assert "from" not in email
    assert "smtp_from" not in email


def test_a_conviction_is_a_finding_and_other_messages_are_email_activity() -> None:
    judged = next(event for event in EXAMPLES if event.type == "message.scanned")
    classes = {
        verdict: document_of(Format.OCSF, replace(judged, data={**judged.data, "verdict": verdict.value}))["class_uid"]
        for verdict in Verdict
    }
    convictions = {verdict for verdict, found in classes.items() if found == 2004}
    assert convictions == {Verdict.MALWARE, Verdict.PHISHING, Verdict.FRAUD, Verdict.SPOOF}
    assert {found for verdict, found in classes.items() if verdict not in convictions} == {4009}


def flat(document: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if key == "mailwarden":  # our own field set
            continue
        if isinstance(value, dict):
            yield from flat(value, f"{above}{key}.")
        else:
            yield above + key, value


def test_an_ecs_document_has_only_fields_of_ecs_with_their_types() -> None:
    def check(event: Event) -> None:
        document = msgspec.json.decode(msgspec.json.encode(document_of(Format.ECS, event)))
        fields = dict(flat(document))
        assert fields.keys() <= FIELDS.keys()
        assert fields.keys() >= REQUIRED
        for key, value in fields.items():
            assert isinstance(value, list) == (key in LISTS), key
            for each in value if isinstance(value, list) else [value]:
                assert isinstance(each, str), key
                assert each, key
                if FIELDS[key] == IP:
                    ip_address(each)
                if FIELDS[key] == DATE:
                    assert datetime.fromisoformat(each).tzinfo is not None
        assert fields["event.kind"] in KINDS
        assert fields["event.outcome"] in OUTCOMES
        assert all(set(fields["event.type"]) <= CATEGORIES[category] for category in fields["event.category"])

    every(VARIANTS, check, name)


def test_a_native_event_is_valid_against_its_own_schema() -> None:
    def check(event: Event) -> None:
        document = msgspec.json.decode(msgspec.json.encode(document_of(Format.NATIVE, event)))
        Draft202012Validator(schemas()[event.type]).validate(document)

    every(EXAMPLES, check, name)


@pytest.mark.parametrize("wanted", list(Format))
def test_an_event_of_a_newer_version_is_delivered_too(wanted: Format) -> None:
    event = Event(UUID(int=7), "future.thing", datetime.now(UTC), None, "x", {"a": 1})
    document = msgspec.json.decode(msgspec.json.encode(document_of(wanted, event)))
    if wanted is Format.OCSF:
        assert not list(ocsf_validator(0, ()).iter_errors(document))
    assert "future" in msgspec.json.encode(document).decode()


def test_syslog_severities_follow_the_event() -> None:
    found = {event.type: severity_of(event) for event in EXAMPLES}
    assert found["engine.down"] == 4
    assert found["message.scanned"] == 5
    assert found["list.changed"] == 6
    assert all(re.fullmatch(r"[!-~]{1,32}", each) for each in found)
