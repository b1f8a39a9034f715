"""The catalogue of events: every type has a schema and a valid example, and hostile text is bounded and storable."""

import json
from datetime import UTC, datetime

import jsonschema_rs
import msgspec
import pytest

from mailwarden.errors import SchemaViolation
from mailwarden.events.catalogue import CATALOGUE, MAX_LISTED, MAX_TEXT, Event, encode, schemas
from mailwarden.events.outbox import encode_data
from mailwarden.events.reader import cursor_of, number_of
from mailwarden.events.scanned import ScannedEvents, judged
from mailwarden.model.envelope import Envelope
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import FinishedRequest
from tests.samples.finished import finished_request
from workshop.pages.event_examples import examples


def test_every_type_has_an_example() -> None:
    assert [example.type for example in examples()] == list(CATALOGUE)


@pytest.mark.parametrize("example", examples(), ids=lambda example: example.type)
def test_an_example_is_valid_by_the_schema_of_its_type(example: Event) -> None:
    schema = schemas()[example.type]
    assert schema["$id"] == f"urn:mailwarden:event:{example.type}:1"
    validator = jsonschema_rs.validator_for(schema)
    record = json.loads(encode(example))
    validator.validate(record)
    assert not validator.is_valid({**record, "type": "another.type"})
    for name in record["data"]:
        without = {key: value for key, value in record["data"].items() if key != name}
        assert not validator.is_valid({**record, "data": without}), f"{name} is optional"
    assert msgspec.convert(record["data"], CATALOGUE[example.type], strict=False)


def hostile() -> FinishedRequest:
    request = finished_request(subject="\ud800\x00" + "x" * 5_000, source="smtp")
    recipients = tuple(f"r{number}@acme.example" for number in range(1_000))
    return msgspec.structs.replace(request, envelope=Envelope("", recipients))


def test_a_judged_message_is_bounded_and_storable() -> None:
    data = judged(hostile())
    assert (len(data.recipients), data.recipient_count) == (MAX_LISTED, 1_000)
    assert len(data.subject) == MAX_TEXT
    text = encode_data(data)
    text.encode("utf-8")
    event = Event(data.ggrid, "message.scanned", datetime.now(UTC), None, "x", json.loads(text))
    jsonschema_rs.validator_for(schemas()["message.scanned"]).validate(json.loads(encode(event)))


def test_judged_messages_are_selected_by_verdict_and_share() -> None:
    bad = [finished_request() for _ in range(2_000)]
    verdict = msgspec.structs.replace(bad[0].judgement, verdict=Verdict.CLEAN)
    clean = msgspec.structs.replace(bad[0], judgement=verdict)
    assert ScannedEvents("all").includes(clean)
    assert not ScannedEvents("notClean").includes(clean)
    assert ScannedEvents("notClean").includes(bad[0])
    assert not ScannedEvents("none").includes(bad[0])
    tenth = ScannedEvents("all", 0.1)
    chosen = [each.ggrid for each in bad if tenth.includes(each)]
    assert 100 < len(chosen) < 320
    assert chosen == [each.ggrid for each in bad if tenth.includes(each)], "every guard chooses the same"


@pytest.mark.parametrize("number", [0, 1, 255, 1 << 32, (1 << 63) - 1])
def test_a_cursor_is_read_back(number: int) -> None:
    assert number_of(cursor_of(number)) == number


@pytest.mark.parametrize("text", ["", "x", "AAAA", cursor_of(1)[:-1], cursor_of(1) + "AAAA", "Ä" * 12, "_" * 12])
def test_another_text_is_no_cursor(text: str) -> None:
    with pytest.raises(SchemaViolation, match="no cursor"):
        number_of(text)
