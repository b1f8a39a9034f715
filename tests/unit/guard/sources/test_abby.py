"""abby sends a head and the message; guard refuses heads that abby would not send."""

import re
import time
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from msgspec.structs import replace

from mailwarden.errors import BadRequest, EmptyEmail, PayloadTooLarge, UnsupportedMediaType
from mailwarden.hop.records import LENGTH_BYTES, MAX_SCAN_HEAD, VERSION, scan_of, write_head
from mailwarden.hop.scan_body import ScanReader
from mailwarden.model.envelope import Envelope
from mailwarden.model.scan import Scan
from mailwarden.model.tenant import AssignedBy, Assignment, Profile, RecipientGroup
from mailwarden.serving.spool import MAX_IN_MEMORY, Spooled
from mailwarden.serving.uploads import MAX_BODY

ANN, BOB = "ann@acme.example", "bob@club.example"
MESSAGE = b"Subject: x\r\n\r\nhello\r\n"
ACME, CLUB = str(UUID(int=1)), str(UUID(int=2))
ENVELOPE = {"sender": "", "recipients": [ANN, BOB], "remote_address": "192.0.2.7"}


def group(tenant: str, *recipients: str, **changes: object) -> dict[str, object]:
    return {"assignment": {"tenant": tenant, "by": "domains", **changes}, "recipients": recipients}


HEAD = {
    "version": VERSION,
    "ggrid": str(UUID(int=7)),
    "milliseconds": 5_000,
    "envelope": ENVELOPE,
    "groups": [group(ACME, ANN, BOB)],
}


def body_of(head: Any, message: bytes = MESSAGE) -> bytes:
    text = head if isinstance(head, bytes) else msgspec.json.encode(head)
    return len(text).to_bytes(LENGTH_BYTES, "big") + text + message


async def read(body: bytes, folder: Path, piece: int = 65_536, size: int | None = None) -> Scan:
    reader = ScanReader(len(body) if size is None else size, folder)
    try:
        for start in range(0, len(body), piece):
            await reader.take(body[start : start + piece])
        head, message = await reader.finish()
        return scan_of(head, message, "restApi", "r1")
    finally:
        reader.discard()


async def arrived(groups: tuple[RecipientGroup, ...], recipients: tuple[str, ...], folder: Path) -> Scan:
    envelope = Envelope("", recipients, "192.0.2.7", "mx.example")
    deadline, message = time.monotonic() + 5.0, Spooled.of(MESSAGE)
    scan = Scan("restApi", envelope, groups, message, UUID(int=7), deadline, "r1", stored=False, watched=True)
    received = await read(write_head(scan) + MESSAGE, folder)
    assert received.message.data() == MESSAGE
    assert deadline - 1.0 < received.deadline < deadline + 1.0
    assert replace(received, message=scan.message, deadline=deadline) == scan
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
    assert len(write_head(received)) < MAX_SCAN_HEAD / 2


@pytest.mark.parametrize("piece", [1, 3, 7, 65_536])
async def test_a_body_in_any_pieces_reads_the_same(piece, tmp_path):
    received = await read(body_of(HEAD), tmp_path, piece)
    assert (received.envelope.recipients, received.message.data()) == ((ANN, BOB), MESSAGE)
    assert (received.stored, received.watched) == (True, False)


async def test_a_large_message_is_a_file_with_exactly_its_bytes(tmp_path):
    message = bytes(range(256)) * (MAX_IN_MEMORY // 256 + 1)
    received = await read(body_of(HEAD, message), tmp_path)
    assert not received.message.in_memory
    assert received.message.data() == message
    assert received.message.open_to_read() is not None
    assert isinstance(received.message, Spooled)
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
        {**HEAD, "milliseconds": -1},
        {**HEAD, "milliseconds": 10**400},
        {**HEAD, "milliseconds": True},
        {**HEAD, "stored": "no"},
        {**HEAD, "groups": []},
        {**HEAD, "groups": 3},
        {**HEAD, "groups": [group(ACME, ANN, BOB, profile="odd")]},
        {**HEAD, "groups": [group(ACME, ANN, BOB, weights={"a": "b"})]},
        {**HEAD, "envelope": {**ENVELOPE, "recipients": []}, "groups": [group(ACME)]},
        {**HEAD, "envelope": {**ENVELOPE, "recipients": [ANN] * 1_001}, "groups": [group(ACME, *[ANN] * 1_001)]},
        {**HEAD, "envelope": {**ENVELOPE, "helo": "mx\r\nX-Other: 1"}},
        {**HEAD, "envelope": {**ENVELOPE, "sender": "\x85@sender.example"}},
        {**HEAD, "envelope": {**ENVELOPE, "sender": "a" * 1_025}},
        {**HEAD, "envelope": {**ENVELOPE, "sender": "a b@sender.example"}},
        {**HEAD, "envelope": {**ENVELOPE, "recipients": [ANN, "b@club.example c@club.example"]}},
        {**HEAD, "envelope": {**ENVELOPE, "remote_address": "192.0.2.700"}},
        {**HEAD, "envelope": {**ENVELOPE, "remote_address": "fe80::1%eth0"}},
        {**HEAD, "groups": [group(ACME, ANN)]},
        {**HEAD, "groups": [group(ACME, ANN), group(CLUB, ANN, BOB)]},
        {**HEAD, "groups": [group(ACME, ANN), group(CLUB, "c@club.example")]},
        {**HEAD, "groups": [group(ACME, ANN), group(ACME, BOB)]},
    ],
)
async def test_a_head_that_abby_never_sends_is_refused(head, tmp_path):
    with pytest.raises(BadRequest, match="head of the scan request is malformed"):
        await read(body_of(head), tmp_path)


# What this version writes. The next one reads these bytes; where it writes others it adds them here.
WRITTEN = {
    1: b'{"version":1,"ggrid":"00000000-0000-0000-0000-000000000007","milliseconds":5000,'
    b'"envelope":{"sender":"","recipients":["ann@acme.example","bob@club.example"],"remote_address":"192.0.2.7"},'
    b'"groups":[{"assignment":{"tenant":"00000000-0000-0000-0000-000000000001","by":"domains","profile":"strict",'
    b'"weights":{"html.form":3}},"recipients":["ann@acme.example"]},'
    b'{"assignment":{"tenant":"00000000-0000-0000-0000-000000000002","by":"default","profile":"balanced","weights":{}},'
    b'"recipients":["bob@club.example"]}],"stored":false,"watched":true}'
}
GROUPS = (
    RecipientGroup(Assignment(UUID(ACME), AssignedBy.DOMAINS, Profile.STRICT, {"html.form": 3}), (ANN,)),
    RecipientGroup(Assignment(UUID(CLUB), AssignedBy.DEFAULT), (BOB,)),
)


@pytest.mark.parametrize("version", [version for version in WRITTEN if VERSION - version <= 1])
async def test_the_bytes_of_this_version_and_of_the_one_before_are_read(version, tmp_path):
    received = await read(body_of(WRITTEN[version]), tmp_path)
    assert received.envelope == Envelope("", (ANN, BOB), "192.0.2.7")
    assert (received.groups, received.stored, received.watched) == (GROUPS, False, True)


def test_this_version_writes_the_recorded_bytes():
    envelope = Envelope("", (ANN, BOB), "192.0.2.7")
    scan = Scan("restApi", envelope, GROUPS, Spooled.of(MESSAGE), UUID(int=7), stored=False, watched=True)
    head = write_head(replace(scan, deadline=time.monotonic() + 5.0))[LENGTH_BYTES:]
    assert re.sub(rb'"milliseconds":\d+', b'"milliseconds":5000', head) == WRITTEN[VERSION]


async def test_the_next_version_may_add_what_this_one_ignores(tmp_path):
    received = await read(body_of({**HEAD, "version": VERSION + 1, "later": {"deep": [1]}}), tmp_path)
    assert received.envelope.recipients == (ANN, BOB)


@pytest.mark.parametrize("version", [VERSION - 2, VERSION + 2])
async def test_a_version_further_away_is_refused_with_a_sentence(version, tmp_path):
    with pytest.raises(UnsupportedMediaType, match=f"has version {version}, this guard reads"):
        await read(body_of({"version": version, "everything": "else"}), tmp_path)


async def test_a_refused_body_leaves_no_open_file(tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    reader = ScanReader(MAX_BODY, tmp_path)
    await reader.take(body_of(HEAD, b"x" * (MAX_IN_MEMORY + 1)))
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 1
    reader.discard()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
