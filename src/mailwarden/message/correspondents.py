"""Who a message says it is from and for: an offer for the envelope of one that came without.

Security: reads the head of a hostile message, at most as much as a header block may have; linear, and never raises.
"""

from mailwarden.message.addresses import read_addresses
from mailwarden.message.fields import read_fields
from mailwarden.message.headers import decode_headers
from mailwarden.message.identity import read_identity
from mailwarden.message.limits import LIMITS

HEAD = LIMITS.header_block
MAX_RECIPIENTS = 100  # not inspection: who is remembered as a correspondent


def correspondents(head: bytes) -> tuple[str, tuple[str, ...]]:
    """Return the address in From, and those in To and Cc, out of the beginning of a message."""
    block = head[:HEAD].replace(b"\r\n", b"\n")
    end = block.find(b"\n\n")
    headers = decode_headers(read_fields(block[:end] if end >= 0 else block))
    sender = next((read_identity(header.value).address for header in headers if header.name == "from"), "")
    found = (
        each.address
        for header in headers
        if header.name in ("to", "cc")
        for each in read_addresses(header.value)
        if "@" in each.address
    )
    return sender, tuple(dict.fromkeys(found))[:MAX_RECIPIENTS]  # not inspection: see above
