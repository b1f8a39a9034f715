"""The summary of a message in history: addresses, subject, parts and hops; the analysis adds the links.

Security: works on a parsed hostile message; every field is bounded.
"""

from mailwarden.message.addresses import first_address, read_addresses, read_identity
from mailwarden.message.limits import LIMITS, SHOWN, Limits
from mailwarden.message.message import Message
from mailwarden.message.received import find_hops
from mailwarden.model.summary import MessageSummary, PartSummary

_SHOWN_ADDRESSES = 100


def summarize(message: Message, limits: Limits = LIMITS) -> MessageSummary:
    sender = read_identity(message.header("from"))
    return MessageSummary(
        size=message.size,
        sha256=message.sha256,
        from_address=sender.address,
        from_name=sender.name,
        reply_to=first_address(message.header("reply-to"), limits).address,
        to=_recipients(message, limits),
        subject=message.header("subject")[: SHOWN.subject],
        message_id=message.header("message-id")[: SHOWN.subject],
        date=message.header("date")[: SHOWN.fact],
        parts=tuple(
            PartSummary(
                part.path, part.media_type[: SHOWN.fact], part.name[: SHOWN.name], len(part.content), part.sha256
            )
            for part in message.parts[: limits.parts]
        ),
        hops=find_hops(message),
    )


def _recipients(message: Message, limits: Limits) -> tuple[str, ...]:
    found = (each.address for each in read_addresses(message.header("to"), limits) if each.address)
    return tuple(found)[:_SHOWN_ADDRESSES]  # shown: in history
