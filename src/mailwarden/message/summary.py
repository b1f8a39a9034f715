"""What is remembered of a message: addresses, subject, parts, links, hops.

Security: works on a parsed hostile message; every field is bounded.
"""

import re

from mailwarden.message.addresses import first_address, read_addresses
from mailwarden.message.charsets import decode_text
from mailwarden.message.identity import read_identity
from mailwarden.message.limits import LIMITS, SHOWN, Limits
from mailwarden.message.message import Message, Part
from mailwarden.message.traces import find_hops, find_links
from mailwarden.message.urls import host_of
from mailwarden.model.summary import MessageSummary, PartSummary

_HOSTS = 256
_SHOWN_ADDRESSES = 100
# The host of a link needs no HTML parser: this finds it in attributes and in text alike.
_PAGES = frozenset({"application/xhtml+xml", "image/svg+xml"})  # text all the same, with links in it
_HOST = re.compile(rb"://([^\s<>\"'/?#\\]{1,300})")


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
        url_hosts=_hosts(message, limits),
        links=find_links(message),
        hops=find_hops(message),
    )


def _recipients(message: Message, limits: Limits) -> tuple[str, ...]:
    found = (each.address for each in read_addresses(message.header("to"), limits) if each.address)
    return tuple(found)[:_SHOWN_ADDRESSES]  # shown: what history keeps


def _hosts(message: Message, limits: Limits) -> tuple[str, ...]:
    found: set[bytes] = set()
    room = limits.urls
    for part in message.parts:
        if (part.media_type.startswith("text/") or part.media_type in _PAGES) and room > 0:
            hosts = _HOST.findall(_readable(part))[:room]
            room -= len(hosts)
            found.update(hosts)
    names = {host_of("http://" + authority.decode("utf-8", "replace")) for authority in found}
    return tuple(sorted(name for name in names if "." in name and name.isprintable()))[
        :_HOSTS
    ]  # not inspection: what history keeps


def _readable(part: Part) -> bytes:
    """Return the text in a charset that keeps ASCII as it is, which only UTF-16 and its kin do not."""
    if part.charset.startswith(("utf-16", "utf-32")):
        return decode_text(part.content, part.charset).encode("utf-8", "replace")
    return part.content
