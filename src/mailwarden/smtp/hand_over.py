"""Hands one mail of guard's own to the next hop, with the null sender, and says whether it may be sent again."""

import asyncio
from collections.abc import AsyncIterator

from mailwarden.smtp.client import NO_ANSWER, DeliveryFailed, NextHop
from mailwarden.smtp.commands import Forwarded, Recipient, Sender

SEND_TIMEOUT = 60.0  # seconds for the envelope, and for the content


class OutcomeUnknown(Exception):
    """The next hop may have accepted the mail: it is not sent again."""


async def hand_over(hop: NextHop, address: str, content: bytes) -> None:
    """Hand the mail over; raise DeliveryFailed if the next hop does not have it for sure."""
    sender = Sender("", utf8=not address.isascii(), eight_bit=not content.isascii())
    try:
        async with asyncio.timeout(SEND_TIMEOUT):
            connection = await hop.prepare(sender, [Recipient(address)], Forwarded(), len(content))
    except TimeoutError:
        raise DeliveryFailed(NO_ANSWER) from None
    try:
        async with asyncio.timeout(SEND_TIMEOUT):
            await hop.send(connection, _stream(content))
    except TimeoutError:
        raise OutcomeUnknown from None
    except DeliveryFailed as failed:
        if isinstance(failed.__cause__, OSError):
            raise OutcomeUnknown from None
        raise


async def _stream(content: bytes) -> AsyncIterator[bytes]:
    yield content
