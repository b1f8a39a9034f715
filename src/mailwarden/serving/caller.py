"""Where a call comes from: the other end of its connection, or whom a trusted proxy there speaks for.

Each proxy writes at the end of X-Forwarded-For whom it was called by. So the field is read from its end, and each word
of it is believed only because a trusted proxy wrote it; the first that is no proxy of ours is the caller. What stands
before it may be made up, and is not looked at: not even its length, or a caller could have it fail on purpose.

Security: reads hostile bytes. What cannot be read ends the search at the last hop that is known, never at a later word.
"""

import re
from collections.abc import Sequence
from itertools import islice

from mailwarden.settings.networks import Address, Networks, peer_address, read_address

FIELD = "X-Forwarded-For"
MAX_HOPS = 16
# Some proxies write the caller's port as well, and IPv6 in brackets then.
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::[0-9]{1,5})?")
_WITH_PORT = re.compile(r"([0-9.]+):[0-9]{1,5}")


def caller_address(peer: str | None, forwarded: Sequence[str], trusted: Networks) -> str | None:
    """Return the caller's address, given the lines of the field as they came; None where there is none to know."""
    caller = peer_address(peer or "")
    if caller is None:
        return None
    for hop in islice(reversed(",".join(forwarded).split(",")), MAX_HOPS):
        if caller not in trusted:
            break
        before = _read_hop(hop.strip(" \t"))
        if before is None:  # an empty word as well: the proxy did not know who called it
            break
        caller = before
    return str(caller)


def _read_hop(text: str) -> Address | None:
    if found := _BRACKETED.fullmatch(text):
        return read_address(found[1]) if ":" in found[1] else None
    if found := _WITH_PORT.fullmatch(text):
        return read_address(found[1])
    return read_address(text)
