"""Received fields: the IP address of the peer that the writing host saw (RFC 5321, section 4.4), and the hops to show.

A Received field repeats the EHLO name of the peer and the peer's DNS name. Only the IP address is the writer's own
knowledge, and each mail server writes it in its own form. Fields are matched against the exact forms of Postfix,
Sendmail, OpenSMTPD, Haraka, Exim and Exchange; a field in any other form has no peer.
Security: works on hostile text. Each form is anchored at the start of the field. The EHLO name and the host name cannot
contain a space, a parenthesis or a quotation mark, so neither can imitate the address after it. Every pattern is
linear, and every field is cut to a limit first.
"""

import re
from ipaddress import ip_address

from msgspec import Struct

from mailwarden.message.message import Message
from mailwarden.model.record import HopSummary

MAX_LINE = 2_000  # not inspection: a longer line is in no known format and ends the walk

_GAP = r" {1,8}"  # a fold is a space here; the writing server never writes a tab
_EHLO = r"[^\s()<>\"\\,;=]{1,255}"
# A verified name, or the placeholder of a server. Words that other servers write before an EHLO name are no name.
_NAME = r"(?!(?:[EHL]HLO|HELO|account|ident|verified) )(?:[A-Za-z0-9_.-]{1,255}|<unknown>)"
_IP = r"(?:IPv6:)?([0-9A-Fa-f:.]{2,45})"
_TEXT = r"[^()\[\]]{1,200}"
# Remarks of Postfix and Sendmail on TLS and authentication, between the address and `by`.
_TLS = (
    rf"(?:{_GAP}\((?:using {_TEXT}(?:\([^()\[\]]{{1,60}}\)[^()\[\]]{{0,200}}){{0,2}}|not using TLS"
    r"|No client certificate requested|Client did not present a certificate"
    r"|Client CN \"[^\"()\[\]]{0,200}\", Issuer \"[^\"()\[\]]{0,200}\" \([^()\[\]]{1,60}\)"
    r"|Authenticated sender: [^\s()\[\]]{1,320}|authenticated(?: bits=\d{1,4})?)\)){0,6}"
)
_PROTOCOL = rf"{_GAP}with{_GAP}(?:UTF8)?(?:E?SMTP|LMTP)S?A?\b"  # RFC 3848, and RFC 6531, section 4.3
_BY = rf"{_GAP}by{_GAP}([^\s()<>\"\\,;]{{1,255}})"
_PORT = r"(?::\d{1,5})?"
_PLACES = (
    # Postfix, Sendmail, OpenSMTPD, Haraka: from EHLO (NAME [ADDRESS]) by HOST (PROGRAM) with ESMTPS id ...
    rf"from {_EHLO}{_GAP}\((?:{_NAME}{_GAP})?\[{_IP}\](?: \(may be forged\))?\){_TLS}{_BY}{_GAP}\({_TEXT}\){_PROTOCOL}",
    # Exim with a host name: from NAME ([ADDRESS]:port helo=EHLO) by HOST with esmtps (TLS1.3) ...
    rf"from {_NAME}{_GAP}\(\[{_IP}\]{_PORT}(?:{_GAP}helo={_EHLO})?(?:{_GAP}ident={_EHLO})?\){_BY}{_PROTOCOL}",
    # Exim without one: from [ADDRESS]:port (helo=EHLO) by HOST with esmtp ...
    rf"from \[{_IP}\]{_PORT}(?:{_GAP}\((?:port=\d{{1,5}} )?(?:helo={_EHLO})?(?: ?ident={_EHLO})?\))?{_BY}{_PROTOCOL}",
    # Exchange: from EHLO (ADDRESS) by HOST (ADDRESS) with Microsoft SMTP Server ...
    rf"from {_EHLO}{_GAP}\({_IP}\){_BY}{_GAP}\([0-9A-Fa-f:.]{{2,45}}\){_GAP}with{_GAP}Microsoft SMTP Server\b",
)
_PATH = re.compile(r"<[^<>]*>")
_SECOND_BY = re.compile(r"\sby\s", re.IGNORECASE)
_FORMS = tuple(re.compile(form, re.IGNORECASE) for form in _PLACES)


MAX_HOPS = 20  # shown: in history
_FROM_HOST = re.compile(r"from\s+([^\s;()]{1,255})", re.IGNORECASE)
_BY_HOST = re.compile(r"(?:^|\s)by\s+([^\s;()]{1,255})", re.IGNORECASE)


class Received(Struct, frozen=True):
    """A field in a known form: the peer's IP address in canonical form, and the host that wrote the field."""

    peer: str
    by_host: str


def read_received(line: str) -> Received | None:
    """Return the peer of a Received field, or None if the field is in no known form."""
    line = line[:MAX_LINE].strip(" \t")  # not inspection: see above
    for form in _FORMS:
        if (found := form.match(line)) and (peer := canonical_address(found[1])):
            # With a second `by`, the first may be part of a name that the peer chose.
            again = _SECOND_BY.search(_PATH.sub("", line[found.end() :]))
            return None if again else Received(peer, found[2])
    return None


def canonical_address(text: str) -> str:
    """Return an IP address in its one spelling, IPv4-mapped as IPv4, or "" if the text is not one."""
    try:
        address = ip_address(text)
    except ValueError:
        return ""
    return str(getattr(address, "ipv4_mapped", None) or address)


def find_hops(message: Message) -> tuple[HopSummary, ...]:
    """Return the hops of the Received fields, the latest first; missing values are empty."""
    return tuple(map(_hop_of, message.all_headers("received")[:MAX_HOPS]))


def _hop_of(value: str) -> HopSummary:
    value = value[:2_000]  # shown: in history
    way, _, moment = value.rpartition(";")
    way = way or value
    by = _BY_HOST.search(way)
    before = way[: by.start()] if by else way
    come = _FROM_HOST.match(before)
    known = read_received(value)
    return HopSummary(
        from_host=_printable(come[1]) if come else "",
        by_host=_printable(by[1]) if by else "",
        address=known.peer if known else "",
        time=_printable(moment.strip())[:100] if way is not value else "",  # shown: in history
    )


def _printable(text: str) -> str:
    """Remove control characters and characters that change the text direction."""
    return text if text.isprintable() else "".join(filter(str.isprintable, text))
