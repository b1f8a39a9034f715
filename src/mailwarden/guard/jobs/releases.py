"""Hands released messages on over SMTP, and has what was released learned from.

Behind the next hop nothing is scanned again. Where releases go elsewhere, and a guard stands there, each message has a
pass, for one recipient each, because MTAs on the way may part those who came together.

Security: what is said to the next hop was read by smtp_commands when the message came. Fields that only we may write
are taken out, as of every message that is delivered.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from uuid import uuid4

from mailwarden.errors import MessageNotFound
from mailwarden.guard.result_headers import Cleaned, clean
from mailwarden.guard.smtp.commands import Forwarded, Recipient, Sender
from mailwarden.guard.smtp.next_hop import NO_ANSWER, NextHop, NotTaken
from mailwarden.learning.contents import MessageCollector
from mailwarden.learning.reports import Kind
from mailwarden.learning.service import ReportService
from mailwarden.model.actor import Actor
from mailwarden.model.scope import Scope
from mailwarden.quarantine.model import HeldMessage
from mailwarden.quarantine.release_token import ReleaseToken, ReleaseTokenSigner
from mailwarden.serving.spool import Spooled

TOKEN_HOURS = 24  # for an MTA on the way that tries again


class ReleaseInjector:
    """With a signer every message gets a release token; without one the next hop must not scan."""

    def __init__(self, hop: NextHop, signer: ReleaseTokenSigner | None = None) -> None:
        self._hop = hop
        self._signer = signer

    async def inject(self, message: HeldMessage, recipients: Sequence[str], raw: Spooled) -> Mapping[str, str]:
        """Return why not, for every recipient for whom it was not accepted."""
        cleaned = clean(raw)
        if self._signer is None and len(recipients) > 1:
            try:
                await self._send(message, recipients, cleaned)
            except NotTaken as failure:
                if failure.reply == NO_ANSWER:
                    return dict.fromkeys(recipients, failure.reply)
            else:
                return {}
        failures: dict[str, str] = {}
        for recipient in recipients:  # one that is refused is no reason against the others
            try:
                await self._send(message, [recipient], cleaned)
            except NotTaken as failure:
                failures[recipient] = failure.reply
        return failures

    async def _send(self, message: HeldMessage, recipients: Sequence[str], cleaned: Cleaned) -> None:
        digest, eight_bit = sha256(), False
        async for chunk in cleaned.stream():
            digest.update(chunk)
            eight_bit = eight_bit or not chunk.isascii()
        field = b""
        if self._signer is not None:
            token = ReleaseToken(message.ggrid, uuid4(), datetime.now(UTC) + timedelta(hours=TOKEN_HOURS))
            field = self._signer.field(token, recipients, digest.digest())
        utf8 = not all(address.isascii() for address in (message.sender, *recipients))
        sender = Sender(message.sender, eight_bit=eight_bit, utf8=utf8)
        size = len(field) + cleaned.size
        connection = await self._hop.prepare(sender, [Recipient(each) for each in recipients], Forwarded(), size)
        await self._hop.send(connection, _stream(field, cleaned))


class ReleaseTraining:
    """Somebody who has a message released says that it is fine."""

    def __init__(self, teaching: ReportService) -> None:
        self._teaching = teaching

    async def released(self, message: HeldMessage, raw: Spooled, requested_by: str) -> None:
        intake = MessageCollector()
        async for chunk in raw.stream():
            intake.add(chunk)
        given, scope, actor = intake.finish(), Scope.of(message.tenant), Actor(requested_by)
        try:
            await self._teaching.report_message(scope, str(message.ggrid), Kind.RELEASED, actor, given)
        except MessageNotFound:  # history keeps it no longer
            await self._teaching.report_contents(scope, message.tenant, Kind.RELEASED, actor, contents=given)


async def _stream(field: bytes, message: Cleaned) -> AsyncIterator[bytes]:
    yield field
    async for chunk in message.stream():
        yield chunk
