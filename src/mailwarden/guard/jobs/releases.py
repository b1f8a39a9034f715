"""Sends released messages over SMTP, and reports them for training.

Messages are not scanned again behind the next hop. If releases go to another host with a guard, each message gets a
release token. A token is for one recipient, because an MTA on the way may split the recipients.

Security: guard/smtp/commands validated the envelope when the message arrived. Fields with our own names are removed, as
from every delivered message.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from uuid import uuid4

from mailwarden.errors import MessageNotFound
from mailwarden.guard.result_headers import Cleaned, clean
from mailwarden.guard.smtp.commands import Forwarded, Recipient, Sender
from mailwarden.guard.smtp.next_hop import NO_ANSWER, NextHop, NotTaken
from mailwarden.learning.reports import Kind, MessageCollector
from mailwarden.learning.service import ReportService
from mailwarden.model.actor import Actor
from mailwarden.model.scope import Scope
from mailwarden.quarantine.model import HeldMessage
from mailwarden.quarantine.release_token import ReleaseToken, ReleaseTokenSigner
from mailwarden.serving.spool import Spooled

TOKEN_HOURS = 24  # long enough for an MTA on the way to retry


class ReleaseInjector:
    """With a signer every message gets a release token; without one the next hop must not scan."""

    def __init__(self, hop: NextHop, signer: ReleaseTokenSigner | None = None) -> None:
        self._hop = hop
        self._signer = signer

    async def inject(self, message: HeldMessage, recipients: Sequence[str], raw: Spooled) -> Mapping[str, str]:
        """Return the error for every recipient whose message was not accepted."""
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
        for recipient in recipients:  # a rejected recipient does not affect the others
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
    """Reports a released message as harmless: a user asked for it."""

    def __init__(self, reports: ReportService) -> None:
        self._reports = reports

    async def released(self, message: HeldMessage, raw: Spooled, requested_by: str) -> None:
        intake = MessageCollector()
        async for chunk in raw.stream():
            intake.add(chunk)
        given, scope, actor = intake.finish(), Scope.of(message.tenant), Actor(requested_by)
        try:
            await self._reports.report_message(scope, str(message.ggrid), Kind.RELEASED, actor, given)
        except MessageNotFound:  # no longer in history
            await self._reports.report_contents(scope, message.tenant, Kind.RELEASED, actor, contents=given)


async def _stream(field: bytes, message: Cleaned) -> AsyncIterator[bytes]:
    yield field
    async for chunk in message.stream():
        yield chunk
