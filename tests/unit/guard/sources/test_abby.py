"""abby tells guard the recipients by tenant in headers; guard refuses what abby would not send."""

import base64
import zlib
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import msgspec
import pytest

from mailwarden.errors import BadRequest
from mailwarden.guard.sources.abby import MAX_HEAD, MAX_HEADERS, group_recipients, read_abby_headers
from mailwarden.hop.https import headers_for
from mailwarden.hop.records import DEADLINE_HEADER, GROUPS_HEADER
from mailwarden.hop.transport import ScanRequest
from mailwarden.model.envelope import Envelope
from mailwarden.model.tenant import AssignedBy, Assignment, Profile, RecipientGroup

PARCEL = cast("Any", SimpleNamespace(content_type="multipart/form-data"))
ANN, BOB = "ann@acme.example", "bob@club.example"


def handed(groups: tuple[RecipientGroup, ...], recipients: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    headers = [
        *headers_for(PARCEL, ScanRequest(UUID(int=7), Envelope("", recipients), groups, "r1")),
        (DEADLINE_HEADER, "5000"),
    ]
    return dict(headers), [value for name, value in headers if name == GROUPS_HEADER]


def arrived(groups: tuple[RecipientGroup, ...], recipients: tuple[str, ...]) -> tuple[RecipientGroup, ...]:
    return group_recipients(read_abby_headers(*handed(groups, recipients)).groups, Envelope("", recipients))


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("weights", [{}, {"html.link-mismatch": 3, "fraud.payment": -4}])
def test_profile_and_weights_arrive_as_they_were_sent(profile, weights):
    groups = (RecipientGroup(Assignment(UUID(int=1), AssignedBy.DOMAINS, profile, weights), (ANN, BOB)),)
    assert arrived(groups, (ANN, BOB)) == groups


def test_each_recipient_arrives_in_its_own_group():
    acme = RecipientGroup(Assignment(UUID(int=1), AssignedBy.DOMAINS), (ANN, ANN, "c@acme.example"))
    club = RecipientGroup(Assignment(UUID(int=2), AssignedBy.DEFAULT, Profile.STRICT), (BOB,))
    assert arrived((acme, club), (ANN, BOB, ANN, "c@acme.example")) == (acme, club)


def test_a_thousand_tenants_with_all_their_weights_fit_into_the_head():
    recipients = tuple(f"a@t{number}.example" for number in range(1_000))
    groups = tuple(
        RecipientGroup(
            Assignment(
                uuid4(), AssignedBy.DOMAINS, weights={f"rule.number-{uuid4().int % 400}": n for n in range(-25, 25)}
            ),
            (recipient,),
        )
        for recipient in recipients
    )
    _, pieces = handed(groups, recipients)
    assert arrived(groups, recipients) == groups
    assert len(pieces) + 20 < MAX_HEADERS
    assert sum(len(piece) + len(GROUPS_HEADER) + 4 for piece in pieces) < MAX_HEAD - 32_768


def packed(value: object) -> list[str]:
    return [base64.b64encode(zlib.compress(msgspec.json.encode(value))).decode()]


GROUP = {"tenant": str(UUID(int=1)), "by": "domains", "profile": "balanced"}
OTHER = {**GROUP, "tenant": str(UUID(int=2))}


@pytest.mark.parametrize(
    "pieces",
    [
        [],
        ["no base64!"],
        [base64.b64encode(b"not packed").decode()],
        [base64.b64encode(zlib.compress(b" " * 9_000_000 + b"[]")).decode()],
        packed([])[:1],
        packed(3),
        packed([{**GROUP, "profile": "odd"}]),
        packed([{**GROUP, "weights": {"a": "b"}}]),
        ["a" * 600_000],
    ],
)
def test_headers_that_abby_never_sends_are_rejected(pieces):
    headers, _ = handed((RecipientGroup(Assignment(UUID(int=1), AssignedBy.DOMAINS)),), ())
    with pytest.raises(BadRequest):
        read_abby_headers(headers, pieces)


@pytest.mark.parametrize(
    "records",
    [
        [{**GROUP, "recipients": [0]}],
        [{**GROUP, "recipients": [0]}, {**OTHER, "recipients": [0, 1]}],
        [{**GROUP, "recipients": [0]}, {**OTHER, "recipients": [2]}],
        [{**GROUP, "recipients": [0]}, {**GROUP, "recipients": [1]}],
        [{**GROUP, "recipients": [-1]}, {**OTHER, "recipients": [0]}],
        [GROUP, OTHER],
    ],
)
def test_every_recipient_has_exactly_one_group(records):
    headers, _ = handed((RecipientGroup(Assignment(UUID(int=1), AssignedBy.DOMAINS)),), ())
    with pytest.raises(BadRequest):
        group_recipients(read_abby_headers(headers, packed(records)).groups, Envelope("", (ANN, BOB)))
