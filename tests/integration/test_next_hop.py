"""The next hop as it should not be: away, slow, full, mad; and connections that are used again."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from uuid import UUID

import pytest
from msgspec.structs import replace

from mailwarden.crypto.keyring import KeyRing
from mailwarden.errors import StorageUnavailable
from mailwarden.guard.sources.smtp_delivery import Delivery, Progress
from mailwarden.model.outcome import Decision
from mailwarden.quarantine.result_headers import ResultSeal
from mailwarden.serving.spool import Spooled
from mailwarden.smtp.client import DeliveryFailed, NextHop
from mailwarden.smtp.commands import Forwarded, Recipient, Sender
from mailwarden.telemetry.metrics import Metrics
from tests.integration.scripted_hop import Scripted
from tests.samples.finished import finished_request, part_of

ALICE = Sender("alice@pass.example")
BOB = (Recipient("bob@company.example"),)


async def stream(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def deliver(hop: NextHop, sender: Sender = ALICE, recipients=BOB, pieces=(b"x\r\n",)) -> str:
    forwarded = Forwarded().extended_by("ADDR=192.0.2.1 HELO=mail+2Bx PORT=25")
    connection = await hop.prepare(sender, recipients, forwarded, 100)
    return (await hop.send(connection, stream(*pieces))).text


async def test_the_envelope_is_handed_on_with_all_its_parameters() -> None:
    server = Scripted()
    sender = Sender("ä@b.example", 5, True, True, ("RET=HDRS",))
    recipients = (Recipient("bob@company.example", ("NOTIFY=NEVER",)), Recipient("eve@company.example"))
    async with server.serving() as hop:
        assert await deliver(hop, sender, recipients) == "2.0.0 Ok: queued as 4711"
    assert server.lines == [
        "EHLO guard.example",
        "XFORWARD ADDR=192.0.2.1 HELO=mail+2Bx",
        "MAIL FROM:<ä@b.example> SIZE=100 BODY=8BITMIME SMTPUTF8 RET=HDRS",
        "RCPT TO:<bob@company.example> NOTIFY=NEVER",
        "RCPT TO:<eve@company.example>",
        "DATA",
    ]


async def test_a_yes_without_a_word_is_a_yes() -> None:
    """RFC 5321, section 4.2: a code by itself is a reply. Not believed, the message would come again and again."""
    server = Scripted(GREETING="220", MAIL="250", RCPT="250", DATA="354", END="250-\r\n250")
    async with server.serving() as hop:
        assert await deliver(hop) == ""
    assert server.messages == [b"x\r\n"]
    refusing = Scripted(RCPT="550", END="451")
    async with refusing.serving() as hop:
        with pytest.raises(DeliveryFailed, match=r"^550 5\.0\.0"):
            await deliver(hop)


@pytest.mark.parametrize(
    "pieces",
    [
        (b".\r\n..\r\n", b".x\r\n"),
        (b"a\r", b"\n.b\r\n", b".", b".c", b"\r", b"\n"),
        (b"", b".", b"\r\n", b"", b".\r\n.\r\n"),
        (b"x" * 300_000 + b"\r\n.", b"y" * 300_000, b"\r\n"),
    ],
)
async def test_dots_are_doubled_wherever_the_pieces_end(pieces) -> None:
    server = Scripted()
    async with server.serving() as hop:
        await deliver(hop, pieces=pieces)
    found = (b"\r\n" + server.messages[0]).replace(b"\r\n.", b"\r\n")[2:]
    assert found == b"".join(pieces)


async def test_a_connection_is_used_again_and_replaced_when_it_is_gone() -> None:
    server = Scripted()
    async with server.serving() as hop:
        for _ in range(3):
            await deliver(hop)
        assert server.connections == 1
        server.script["END"] = "CLOSE"
        with pytest.raises(DeliveryFailed, match=r"451 4\.4\.2"):
            await deliver(hop)
        server.script["END"] = "250 2.0.0 Ok"
        await deliver(hop)
        server.script["MAIL"] = "421 4.3.2 Stopping"
        with pytest.raises(DeliveryFailed, match=r"451 4\.4\.1"):
            await deliver(hop)
        server.script["MAIL"] = "250 Ok"
        assert await deliver(hop) == "2.0.0 Ok"
    assert len(server.messages) == 6


@pytest.mark.parametrize(
    ("script", "reply"),
    [
        ({"GREETING": "CLOSE"}, "451 4.4.1"),
        ({"GREETING": "HANG"}, "451 4.4.1"),
        ({"GREETING": "421 4.3.2 Busy"}, "451 4.4.1"),
        ({"GREETING": "554 No"}, "554 5.0.0"),
        ({"GREETING": "HTTP/1.1 400 Bad Request"}, "451 4.4.1"),
        ({"GREETING": "220-" + "x" * 10_000}, "451 4.4.1"),
        ({"GREETING": "220-more\r\n" * 200 + "220 last"}, "451 4.4.1"),
        ({"EHLO": "502 5.5.1 No"}, "502 5.5.1"),
        ({"EHLO": "250 next.example"}, "451 4.3.5"),
        ({"MAIL": "452 4.3.1 Disk full"}, "452 4.3.1"),
        ({"RCPT": "550 5.1.1 Unknown"}, "550 5.1.1"),
        ({"RCPT TO:<two@company.example>": "550 5.1.1 Unknown"}, "550 5.1.1"),
        ({"RCPT TO:<two@company.example>": "450 4.2.1 Later", "RCPT": "550 5.1.1 Unknown"}, "450 4.2.1"),
        ({"DATA": "451 4.3.0 Later"}, "451 4.3.0"),
        ({"DATA": "HANG"}, "451 4.4.1"),
        ({"END": "552 5.3.4 Too big"}, "552 5.3.4"),
        ({"END": "421 4.3.2 Stopping"}, "451 4.3.2"),
        ({"END": "HANG"}, "451 4.4.2"),
        ({"END": "nonsense"}, "451 4.4.2"),
    ],
)
async def test_rejections_of_the_next_hop_are_reported(script: Mapping[str, str], reply: str) -> None:
    recipients = (Recipient("one@company.example"), Recipient("two@company.example"))
    async with Scripted(**script).serving(timeout=0.3) as hop:
        with pytest.raises(DeliveryFailed) as caught:
            await deliver(hop, Sender("a@b.example", eight_bit=True), recipients)
    assert caught.value.reply[:9] == reply


async def test_a_closed_port_is_unreachable() -> None:
    with pytest.raises(DeliveryFailed, match=r"451 4\.4\.1"):
        await deliver(NextHop(("127.0.0.1", 1), 1.0, "guard.example"))


def progress(recipients: Mapping[str, Decision]) -> Progress:
    """Return the parts of a message whose recipients have a tenant each."""
    parts = []
    for number, decision in enumerate(recipients.values()):
        finished = finished_request(UUID(int=number))
        parts.append(part_of(replace(finished, ruling=replace(finished.ruling, decision=decision))))
    addressed = zip(parts, recipients, strict=True)
    return Progress(parts, {part.tenant: [Recipient(address)] for part, address in addressed})


@pytest.mark.parametrize("refused", ["RCPT TO:<eve@bank.example>", "DATA"])
async def test_no_part_is_sent_before_every_part_is_accepted(refused: str) -> None:
    server = Scripted(**{refused: "450 4.2.1 Later"})
    raw = Spooled.of(b"Subject: x\r\n\r\n")
    async with server.serving() as hop:
        delivery = Delivery(hop, ResultSeal(KeyRing.of(b"k" * 32)), None, Metrics())
        both = dict.fromkeys(("bob@company.example", "eve@bank.example"), Decision.DELIVER)
        answer = await delivery.carry_out(progress(both), Sender(""), Forwarded(), raw)
        assert answer.reply.startswith("450 4.2.1")
        assert not answer.done
        assert server.messages == []
        server.script[refused] = "250 Ok" if refused != "DATA" else "354 Go on"
        answer = await delivery.carry_out(progress(both), Sender(""), Forwarded(), raw)
        assert answer.reply.startswith("250 2.0.0")
    assert len(server.messages) == 2
    seal = ResultSeal(KeyRing.of(b"k" * 32))
    assert all(seal.read(message) is not None for message in server.messages)
    assert seal.read(server.messages[0]).signed <= datetime.now(UTC).timestamp()  # type: ignore[union-attr]


class HeldWriter:
    """A quarantine that remembers, or that has no room."""

    def __init__(self, *, full: bool) -> None:
        self.kept = 0
        self._full = full

    async def hold(self, _: object, __: object) -> None:
        if self._full:
            raise StorageUnavailable("The disk is full.")
        self.kept += 1


@pytest.mark.parametrize(
    ("full", "script", "reply", "kept", "sent"),
    [
        (False, {}, "250 2.0.0", 1, 1),
        (True, {}, "451 4.3.0", 0, 0),
        (False, {"RCPT": "450 4.2.1 Later"}, "450 4.2.1", 0, 0),
        (False, {"GREETING": "CLOSE"}, "451 4.4.1", 0, 0),
        (False, {"END": "451 4.3.0 No room"}, "451 4.3.0", 1, 1),
    ],
)
async def test_held_messages_are_stored_before_the_others_are_sent(
    full: bool, script: Mapping[str, str], reply: str, kept: int, sent: int
) -> None:
    server, shelf = Scripted(**script), HeldWriter(full=full)
    mixed = progress({"ann@north.example": Decision.QUARANTINE, "bob@company.example": Decision.DELIVER})
    async with server.serving() as hop:
        delivery = Delivery(hop, ResultSeal(KeyRing.of(b"k" * 32)), shelf, Metrics())
        answer = await delivery.carry_out(mixed, ALICE, Forwarded(), Spooled.of(b"Subject: x\r\n\r\n"))
    assert answer.reply.startswith(reply)
    assert (shelf.kept, len(server.messages)) == (kept, sent)


async def test_a_next_hop_that_crawls_is_given_up_as_a_whole() -> None:
    server = Scripted(END="HANG", RCPT="250 Ok")
    async with server.serving(timeout=0.2) as hop:
        delivery = Delivery(hop, ResultSeal(KeyRing.of(b"k" * 32)), None, Metrics())
        began = asyncio.get_running_loop().time()
        answer = await delivery.carry_out(
            progress({f"r{number}@company.example": Decision.DELIVER for number in range(10)}),
            Sender(""),
            Forwarded(),
            Spooled.of(b"Subject: x\r\n\r\n"),
        )
        assert answer.reply.startswith("451 4.4.2")
        assert asyncio.get_running_loop().time() - began < 2.0
