"""How a message of a corpus is delivered: its client, its HELO name, its envelope, its signature, its date.

A manifest may say by `auth` how a message was authenticated when it was sent in life. `Authentication` then makes the
records that the rig's name server publishes for the senders' domains, and signs messages that were signed in life.
"""

import re
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.utils import formatdate, parsedate_to_datetime

from dkim import DKIMException
from msgspec import Struct

from mailwarden.message.addresses import organisation_of
from mailwarden.message.urls import normalize_host
from mailwarden.model.envelope import domain_of
from workshop.rig.dns import DkimKey, record_line
from workshop.rig.zones import SELECTOR

# auth values of a manifest; every other value is delivered like `none`
ALIGNED, ESP, SPF_ALIGNED, SPF_ONLY, DKIM_OTHER, SPOOF = (
    "aligned",
    "esp",
    "spf-aligned",
    "spf-only",
    "dkim-other",
    "spoof",
)
_SPF = frozenset({ALIGNED, ESP, SPF_ALIGNED, SPF_ONLY})
_SIGNED = frozenset({ALIGNED, ESP})
_DMARC = frozenset({ALIGNED, ESP, SPF_ALIGNED, SPOOF})

RECIPIENT = "user@corp-recipient.com"
STRANGER_ADDRESS, STRANGER_HOST = "198.18.0.5", "mail.sender.test"  # a client that no SPF record allows
KEY_BITS = 1024  # the shortest that is accepted (RFC 8301, section 3.2): thousands of messages are signed
SERVICE = "outbound.mail-service.test"  # signs where the manifest names no other domain that could have

_DOMAIN = re.compile(r"(?=.{1,200}$)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z0-9-]{2,63}")
_MAILBOX_LINE = re.compile(rb"\A>?From [^\n]*\n")  # of a file that was cut out of a mailbox
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_LINE_END = re.compile(rb"\r?\n")
_FIELD = re.compile(rb"[^\r\n]*(?:\r?\n[ \t][^\r\n]*)*(?:\r?\n|\Z)")
_NAME = re.compile(rb"([!-9;-~]+)[ \t]*:")
_BRACKETS = re.compile(r"<([^<>\s]+@[^<>\s]+)>")
_ADDRESS = re.compile(r"[^\s<>\"(),;:]+@[^\s<>\"(),;:]+")
# Written by the hosts that received a message, not by its sender.
_RECEIVER_FIELDS = re.compile(
    rb"received|received-spf|return-path|delivered-to|authentication-results|arc-[a-z-]+|dkim-signature"
    rb"|domainkey-signature|x-spam-[a-z-]+|x-apparently-to|x-ymailisg|x-authentication-warning|x-original-to"
    rb"|x-atmailcloud-[a-z-]+|x-vr-[a-z]+|x-ovh-spam-[a-z]+|x-cm-(?:envelope|analysis)|date"
)


class Route(Struct, frozen=True):
    """The way of one message: client address, HELO name, envelope sender, and the domain that signs, or ""."""

    address: str = "203.0.113.5"
    helo: str = STRANGER_HOST
    sender: str = ""
    signer: str = ""


class Authentication:
    """The published records and the signatures of all messages of one corpus."""

    def __init__(self) -> None:
        self._key = DkimKey(KEY_BITS)
        self._addresses: dict[str, str] = {}  # by envelope domain
        self._allowed: set[str] = set()  # envelope domains that publish SPF
        self._forged: set[str] = set()  # From domains that other clients use
        self._policies: set[str] = set()  # From domains that publish DMARC
        self._signers: set[str] = set()
        self._known: set[str] = set()  # every sender domain: it has an address and receives mail
        self.unsigned = 0  # messages without a signature, since they cannot be signed

    def add(self, auth: str, mail_from: str | None, raw: bytes) -> None:
        """Count a message in, before the records are read."""
        author, envelope = sender_domain(raw), _envelope_domain(mail_from, raw)
        self._known.update(each for each in (author, envelope) if each)
        client = _client_domain(auth, author, envelope)
        if client:
            self._addresses.setdefault(client, _address(len(self._addresses)))
            self._allowed.add(client)
        signer = _signer(auth, author, envelope)
        if signer:
            self._signers.add(signer)
        if auth in _DMARC and author:
            self._policies.add(author)
        if auth == SPOOF and author:
            self._allowed.add(author)
            self._forged.add(author)

    def route(self, auth: str, mail_from: str | None, raw: bytes) -> Route:
        """Return the way of a message that was counted in."""
        author, envelope = sender_domain(raw), _envelope_domain(mail_from, raw)
        client = _client_domain(auth, author, envelope)
        sender = sender_address(raw) if mail_from is None else mail_from
        if not client:
            return Route(STRANGER_ADDRESS, STRANGER_HOST, sender, _signer(auth, author, envelope))
        return Route(self._addresses[client], _mail_host(client), sender, _signer(auth, author, envelope))

    def sign(self, message: bytes, domain: str) -> bytes:
        try:
            return self._key.sign(message, domain)
        except (DKIMException, ValueError, UnicodeError, AssertionError):
            self.unsigned += 1
            return message

    def records(self) -> list[str]:
        """Return the records of all senders' domains, for the name server."""
        found = [record_line(STRANGER_HOST, "A", STRANGER_ADDRESS), _reverse(STRANGER_ADDRESS, STRANGER_HOST)]
        for domain in sorted(self._known | self._addresses.keys()):
            address = self._addresses.get(domain, STRANGER_ADDRESS)
            host = _mail_host(domain)
            found += [record_line(name, "A", address) for name in (domain, host)]
            found.append(record_line(domain, "MX", f"10 {host}."))
            if domain in self._addresses:
                found.append(_reverse(address, host))
        for domain in sorted(self._allowed):
            address = self._addresses.get(domain, "198.19.255.254")
            for name in (domain, _mail_host(domain)):
                found.append(record_line(name, "TXT", f"v=spf1 ip4:{address} ~all"))
        found += [
            record_line(f"{SELECTOR}._domainkey.{each}", "TXT", self._key.record) for each in sorted(self._signers)
        ]
        forged = {organisation_of(each) for each in self._forged}
        for domain in sorted({each for author in self._policies for each in (author, organisation_of(author))}):
            policy = "quarantine" if organisation_of(domain) in forged else "none"
            found.append(record_line(f"_dmarc.{domain}", "TXT", f"v=DMARC1; p={policy}"))
        return found


def deliver(raw: bytes, route: Route, recipient: str, now: float, authentication: Authentication | None) -> bytes:
    """Return the message as the recipient's server has it: dated now, signed where it was, with one Received field."""
    date = formatdate(now).encode()
    end = _HEAD_END.search(raw)
    head, body = (raw[: end.start()], raw[end.end() :]) if end else (raw, b"")
    head = _MAILBOX_LINE.sub(b"", head, count=1)
    kept = [field for field in _FIELD.findall(head) if field and not _is_dropped(field)]
    lines = b"".join(field if field.endswith(b"\n") else field + b"\n" for field in kept)
    message = _LINE_END.sub(b"\r\n", b"Date: " + date + b"\n" + lines + b"\n" + body)
    if authentication is not None and route.signer:
        message = authentication.sign(message, route.signer)
    host = domain_of(recipient) or domain_of(RECIPIENT)
    received = (
        f"Received: from {route.helo} ({route.helo} [{route.address}])\r\n"
        f"\tby mx.{host} with ESMTPS id 4ABCD for <{recipient}>;\r\n\t"
    )
    return received.encode() + date + b"\r\n" + message


def recipient_of(raw: bytes) -> str:
    """Return the first address in To, or the neutral recipient."""
    found = [each for each in _addresses(_field(raw, b"to")) if each.isascii() and each.isprintable()]
    return found[0][:320] if found else RECIPIENT


def sent_at(raw: bytes) -> float:
    """Return the time in Date, 0 if it has none."""
    try:
        return parsedate_to_datetime(_field(raw, b"date")).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError, OSError):
        return 0.0


def sender_address(raw: bytes) -> str:
    """Return the address in From, "" if there is none."""
    found = _addresses(_field(raw, b"from"))
    return found[-1] if found else ""


def sender_domain(raw: bytes) -> str:
    """Return the domain in From as the name server can publish it, or ""."""
    return _publishable(domain_of(sender_address(raw)))


def _envelope_domain(mail_from: str | None, raw: bytes) -> str:
    return sender_domain(raw) if mail_from is None else _publishable(domain_of(mail_from))


def _publishable(domain: str) -> str:
    name = normalize_host(domain)
    return name if _DOMAIN.fullmatch(name) else ""


def _client_domain(auth: str, author: str, envelope: str) -> str:
    """Return the domain whose SPF record allows the client, or ""; the null sender has that of its HELO name."""
    if auth in _SPF:
        return envelope or author
    if auth == DKIM_OTHER and envelope and organisation_of(envelope) != organisation_of(author):
        return envelope
    return ""


def _signer(auth: str, author: str, envelope: str) -> str:
    if auth in _SIGNED:
        return author
    if auth == DKIM_OTHER:
        return envelope if envelope and organisation_of(envelope) != organisation_of(author) else SERVICE
    return ""


def _address(number: int) -> str:
    """Return an address of 198.18.0.0/15, which is reserved for measurements (RFC 2544)."""
    network, host = divmod(number, 250)
    return f"198.{18 + network // 250 % 2}.{1 + network % 250}.{1 + host}"


def _mail_host(domain: str) -> str:
    return f"mail.{domain}"


def _reverse(address: str, host: str) -> str:
    return record_line(".".join(reversed(address.split("."))) + ".in-addr.arpa", "PTR", f"{host}.")


def _is_dropped(field: bytes) -> bool:
    name = _NAME.match(field)
    return name is not None and _RECEIVER_FIELDS.fullmatch(name[1].lower()) is not None


def _field(raw: bytes, name: bytes) -> str:
    """Return the text of the first field of this name, unfolded."""
    end = _HEAD_END.search(raw)
    for field in _FIELD.findall(raw[: end.start()] if end else raw[:100_000]):
        found = _NAME.match(field)
        if found and found[1].lower() == name:
            return " ".join(bytes(field[found.end() :]).decode("utf-8", "replace").split())
    return ""


def _addresses(text: str) -> list[str]:
    found = _BRACKETS.findall(text) or _ADDRESS.findall(text)
    if found or "=?" not in text:
        return found
    try:
        decoded = str(make_header(decode_header(text)))
    except (HeaderParseError, LookupError, UnicodeError, ValueError):
        return []
    return _BRACKETS.findall(decoded) or _ADDRESS.findall(decoded)
