"""abby sends a head and the message; guard refuses heads that abby would not send."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from mailwarden.errors import BadRequest, EmptyEmail, MailwardenError, PayloadTooLarge, SchemaViolation
from mailwarden.hop.https import head_of
from mailwarden.hop.records import LENGTH_BYTES, MAX_SCAN_HEAD, write_scan_head
from mailwarden.hop.scan_body import ReceivedScan, ScanReader
from mailwarden.hop.transport import ScanRequest
from mailwarden.model.envelope import Envelope
from mailwarden.model.tenant import AssignedBy, Assignment, Profile, RecipientGroup
from mailwarden.serving.spool import MAX_IN_MEMORY
from mailwarden.serving.uploads import MAX_BODY

ANN, BOB = "ann@acme.example", "bob@club.example"
MESSAGE = b"Subject: x\r\n\r\nhello\r\n"
GROUP = {"tenant": str(UUID(int=1)), "by": "domains", "profile": "balanced"}
OTHER = {**GROUP, "tenant": str(UUID(int=2))}
BORDER = {"envelopeFrom": "", "envelopeRecipients": [ANN, BOB], "remoteAddress": "192.0.2.7"}
HEAD = {"ggrid": str(UUID(int=7)), "deadlineMs": 5_000, "borderMtaData": BORDER, "groups": [GROUP]}


def body_of(head: Any, message: bytes = MESSAGE) -> bytes:
    text = head if isinstance(head, bytes) else msgspec.json.encode(head)
    return len(text).to_bytes(LENGTH_BYTES, "big") + text + message


async def read(body: bytes, folder: Path, piece: int = 65_536, size: int | None = None) -> ReceivedScan:
    reader = ScanReader(len(body) if size is None else size, folder)
    try:
        for start in range(0, len(body), piece):
            await reader.take(body[start : start + piece])
        return await reader.finish()
    finally:
        reader.discard()


async def arrived(groups: tuple[RecipientGroup, ...], recipients: tuple[str, ...], folder: Path) -> ReceivedScan:
    envelope = Envelope("", recipients, "192.0.2.7", "mx.example")
    deadline = asyncio.get_running_loop().time() + 5.0
    head = head_of(ScanRequest(UUID(int=7), envelope, groups, "r1"), deadline, stored=False, watched=True)
    received = await read(write_scan_head(head) + MESSAGE, folder)
    assert (received.head, received.envelope, received.message.data()) == (head, envelope, MESSAGE)
    assert 4_000 < received.head.deadline_ms <= 5_000
    return received


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("weights", [{}, {"html.link-mismatch": 3, "fraud.payment": -4}])
async def test_profile_and_weights_arrive_as_they_were_sent(profile, weights, tmp_path):
    groups = (RecipientGroup(Assignment(UUID(int=1), AssignedBy.DOMAINS, profile, weights), (ANN, BOB)),)
    assert (await arrived(groups, (ANN, BOB), tmp_path)).groups == groups


async def test_each_recipient_arrives_in_its_own_group(tmp_path):
    acme = RecipientGroup(Assignment(UUID(int=1), AssignedBy.DOMAINS), (ANN, ANN, "c@acme.example"))
    club = RecipientGroup(Assignment(UUID(int=2), AssignedBy.DEFAULT, Profile.STRICT), (BOB,))
    assert (await arrived((acme, club), (ANN, BOB, ANN, "c@acme.example"), tmp_path)).groups == (acme, club)


async def test_a_thousand_tenants_with_all_their_weights_fit_into_the_head(tmp_path):
    recipients = tuple(f"{'a' * 1_000}@t{number}.example" for number in range(1_000))
    groups = tuple(
        RecipientGroup(
            Assignment(
                uuid4(), AssignedBy.DOMAINS, weights={f"rule.number-{uuid4().int % 400}": n for n in range(-25, 25)}
            ),
            (recipient,),
        )
        for recipient in recipients
    )
    received = await arrived(groups, recipients, tmp_path)
    assert received.groups == groups
    assert len(write_scan_head(received.head)) < MAX_SCAN_HEAD / 2


@pytest.mark.parametrize("piece", [1, 3, 7, 65_536])
async def test_a_body_in_any_pieces_reads_the_same(piece, tmp_path):
    received = await read(body_of(HEAD), tmp_path, piece)
    assert (received.envelope.recipients, received.message.data()) == ((ANN, BOB), MESSAGE)
    assert (received.head.stored, received.head.watched) == (True, False)


async def test_a_large_message_is_a_file_with_exactly_its_bytes(tmp_path):
    message = bytes(range(256)) * (MAX_IN_MEMORY // 256 + 1)
    received = await read(body_of(HEAD, message), tmp_path)
    assert not received.message.in_memory
    assert received.message.data() == message
    assert received.message.open_to_read() is not None
    received.message.close()


async def test_a_body_that_ends_within_its_head_is_refused(tmp_path):
    body = body_of(HEAD)
    for end in range(len(body) - len(MESSAGE)):
        with pytest.raises(BadRequest):
            await read(body[:end], tmp_path)
        with pytest.raises(BadRequest, match="ends within its head"):
            await read(body[:end], tmp_path, size=len(body))


@pytest.mark.parametrize(
    ("head", "message", "error", "sentence"),
    [
        ((MAX_SCAN_HEAD + 1).to_bytes(4, "big"), 1, PayloadTooLarge, "The head of the scan request is larger"),
        (b"\xff\xff\xff\xff", 1, PayloadTooLarge, "The head of the scan request is larger"),
        ((10).to_bytes(4, "big"), MAX_BODY + 1, PayloadTooLarge, "The message of the scan request is larger"),
        ((10).to_bytes(4, "big"), 0, EmptyEmail, "The message of the scan request is empty"),
        ((10).to_bytes(4, "big"), -1, BadRequest, "longer than its body"),
    ],
)
async def test_a_size_beyond_a_limit_is_refused_before_it_is_read(head, message, error, sentence, tmp_path):
    with pytest.raises(error, match=sentence):
        await read(head, tmp_path, size=LENGTH_BYTES + int.from_bytes(head, "big") + message)


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        msgspec.json.encode(HEAD) + b" {}",
        *({name: value for name, value in HEAD.items() if name != missing} for missing in HEAD),
        {**HEAD, "ggrid": "7"},
        {**HEAD, "deadlineMs": -1},
        {**HEAD, "deadlineMs": 10**400},
        {**HEAD, "deadlineMs": True},
        {**HEAD, "stored": "no"},
        {**HEAD, "verdict": "clean"},
        {**HEAD, "groups": []},
        {**HEAD, "groups": 3},
        {**HEAD, "groups": [{**GROUP, "profile": "odd"}]},
        {**HEAD, "groups": [{**GROUP, "weights": {"a": "b"}}]},
        {**HEAD, "groups": [{**GROUP, "recipients": [0] * 1_001}]},
        {**HEAD, "borderMtaData": {**BORDER, "envelopeRecipients": []}},
        {**HEAD, "borderMtaData": {**BORDER, "envelopeRecipients": [ANN] * 1_001}},
        {**HEAD, "borderMtaData": {**BORDER, "senderHelo": "mx\r\nX-Other: 1"}},
    ],
)
async def test_a_head_that_abby_never_sends_is_refused(head, tmp_path):
    with pytest.raises(BadRequest, match="head of the scan request is malformed"):
        await read(body_of(head), tmp_path)


@pytest.mark.parametrize(
    "border",
    [
        {**BORDER, "envelopeFrom": "a b@sender.example"},
        {**BORDER, "envelopeRecipients": [ANN, "b@club.example c@club.example"]},
        {**BORDER, "remoteAddress": "192.0.2.700"},
        {**BORDER, "remoteAddress": "fe80::1%eth0"},
    ],
)
async def test_an_envelope_in_a_head_passes_the_checks_of_the_scanning_api(border, tmp_path):
    with pytest.raises(SchemaViolation):
        await read(body_of({**HEAD, "borderMtaData": border}), tmp_path)


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
async def test_every_recipient_has_exactly_one_group(records, tmp_path):
    with pytest.raises(MailwardenError):
        await read(body_of({**HEAD, "groups": records}), tmp_path)


async def test_a_refused_body_leaves_no_open_file(tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    reader = ScanReader(MAX_BODY, tmp_path)
    await reader.take(body_of(HEAD, b"x" * (MAX_IN_MEMORY + 1)))
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 1
    reader.discard()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
