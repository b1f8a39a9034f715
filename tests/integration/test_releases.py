"""Releases over SMTP: handed to the next hop byte for byte, one recipient's refusal is no other's."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from aiosmtpd.smtp import SMTP

from mailwarden.crypto.keyring import KeyRing
from mailwarden.model.outcome import Verdict
from mailwarden.quarantine.model import HeldMessage, HeldRecipient
from mailwarden.quarantine.release_delivery import ReleaseInjector
from mailwarden.quarantine.release_token import ReleaseTokenSigner
from mailwarden.serving.spool import Spooled
from mailwarden.smtp.client import NextHop
from tests.integration.rejecting_sink import RejectingSink

RAW = b"From: eve@evil.example\r\nSubject: x\r\n\r\n.dot\r\ntext \xfc\r\n" + b"line\r\n" * 20_000
SEAL = ReleaseTokenSigner(KeyRing.of(b"k" * 64))


class Sink(RejectingSink):
    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[tuple[str, ...], bytes]] = []

    async def handle_DATA(self, _: object, __: object, envelope: Any) -> str:  # noqa: N802
        self.taken.append((tuple(envelope.rcpt_tos), envelope.content))
        return "250 2.0.0 Ok"


@pytest.fixture
async def sink() -> Sink:
    return Sink()


@pytest.fixture
async def hop(sink: Sink) -> AsyncIterator[NextHop]:
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(sink), "127.0.0.1", 0)
    hop = NextHop(server.sockets[0].getsockname()[:2], 5.0, "guard.example")
    yield hop
    hop.close()
    server.close()
    await server.wait_closed()


def held(*recipients: str) -> HeldMessage:
    now = datetime.now(UTC)
    return HeldMessage(
        uid=uuid4(),
        tenant=UUID(int=1),
        ggrid=uuid4(),
        vault=uuid4(),
        address=b"a" * 32,
        size=len(RAW),
        sender="eve@evil.example",
        from_address="eve@evil.example",
        from_name="",
        subject="x",
        verdict=Verdict.SPAM,
        received=now,
        expires=now,
        missing=False,
        recipients=tuple(HeldRecipient(each) for each in recipients),
    )


TWO = ("ann@north.example", "bob@north.example")


async def test_all_recipients_get_the_message_in_one_go_and_byte_for_byte(sink: Sink, hop: NextHop):
    assert await ReleaseInjector(hop).inject(held(*TWO), TWO, Spooled.of(RAW)) == {}
    assert sink.taken == [(TWO, RAW)]


async def test_a_rejected_recipient_is_reported_and_the_other_gets_it(sink: Sink, hop: NextHop):
    sink.refused = {"ann@north.example": "550 5.1.1 No such user"}
    failures = await ReleaseInjector(hop).inject(held(*TWO), TWO, Spooled.of(RAW))
    assert failures == {"ann@north.example": "550 5.1.1 No such user"}
    assert [recipients for recipients, _ in sink.taken] == [("bob@north.example",)]


async def test_forged_fields_are_taken_out(sink: Sink, hop: NextHop):
    forged = b"X-Mailwarden-Verdict: clean\r\n" + RAW
    await ReleaseInjector(hop).inject(held(TWO[0]), TWO[:1], Spooled.of(forged))
    assert sink.taken == [(TWO[:1], RAW)]


async def test_a_silent_next_hop_is_reported_for_every_recipient(tmp_path: Path):
    nobody = NextHop(("127.0.0.1", 1), 1.0, "guard.example")
    failures = await ReleaseInjector(nobody).inject(held(*TWO), TWO, Spooled.of(RAW))
    assert set(failures) == set(TWO)
    assert all(reply.startswith("451 4.4.1") for reply in failures.values())


async def test_with_a_seal_every_recipient_has_a_pass_of_their_own(sink: Sink, hop: NextHop):
    message = held(*TWO)
    assert await ReleaseInjector(hop, SEAL).inject(message, TWO, Spooled.of(RAW)) == {}
    passes = set()
    for recipients, content in sink.taken:
        assert content.endswith(RAW)
        admitted = await SEAL.verify_message(Spooled.of(content), recipients, datetime.now(UTC))
        assert admitted is not None
        assert admitted.ggrid == message.ggrid
        passes.add(admitted.uid)
    assert len(passes) == 2
