"""Sends released messages to the next hop, with a release token if another guard is behind it.

Messages are not scanned again behind the next hop. If releases go to another host with a guard, each message gets a
release token. A token is for one recipient, because an MTA on the way may split the recipients.

Security: smtp/commands validated the envelope when the message arrived. Fields with our own names are removed, as
from every delivered message.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from uuid import uuid4

from mailwarden.quarantine.model import HeldMessage
from mailwarden.quarantine.release_token import TOKEN_HOURS, ReleaseToken, ReleaseTokenSigner
from mailwarden.quarantine.result_headers import Cleaned, clean
from mailwarden.serving.spool import Spooled
from mailwarden.smtp.client import NO_ANSWER, DeliveryFailed, NextHop
from mailwarden.smtp.commands import Forwarded, Recipient, Sender


class ReleaseInjector:
    """Sends released messages; with a signer each gets a release token, without one the next hop must not scan."""

    def __init__(self, hop: NextHop, signer: ReleaseTokenSigner | None = None) -> None:
        self._hop = hop
        self._signer = signer

    async def inject(self, message: HeldMessage, recipients: Sequence[str], raw: Spooled) -> Mapping[str, str]:
        """Return the error for every recipient whose message was not accepted."""
        cleaned = clean(raw)
        if self._signer is None and len(recipients) > 1:
            try:
                await self._send(message, recipients, cleaned)
            except DeliveryFailed as failure:
                if failure.reply == NO_ANSWER:
                    return dict.fromkeys(recipients, failure.reply)
            else:
                return {}
        failures: dict[str, str] = {}
        for recipient in recipients:  # a rejected recipient does not affect the others
            try:
                await self._send(message, [recipient], cleaned)
            except DeliveryFailed as failure:
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
        connection = await self._hop.prepare(
            sender, [Recipient(recipient) for recipient in recipients], Forwarded(), size
        )
        await self._hop.send(connection, cleaned.stream(field))
