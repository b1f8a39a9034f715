"""The arguments of MAIL, RCPT and XFORWARD: an address and its parameters, or the reply that rejects them.

MAIL and RCPT: RFC 5321, section 4.1.2; SIZE: RFC 1870; BODY: RFC 6152; SMTPUTF8: RFC 6531, section 3.4; RET, ENVID,
NOTIFY and ORCPT: RFC 3461, section 4; XFORWARD: Postfix's XFORWARD_README.

Security: hostile text, which guard repeats to the next hop. An address that could end its command, or begin another,
is rejected and never repaired. So is a recipient that the next hop would read as another mailbox: the tenant that guard
assigns must be the owner of that mailbox. XFORWARD is trusted, because only the networks of `clients` may connect, and
still checked, because its values come from the client of Postfix.
"""

import ipaddress
import re
from collections.abc import Mapping

from msgspec import Struct

UNDECIDED = "451 4.7.1 The message could not be judged; try again later"

MAX_ADDRESS = 1_024
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# A quoted local part, or none, and then no character that ends an address: linear.
_ADDRESS = re.compile(r'(?:"(?:[^"\\]|\\.)*")?[^"\\<>\s]*')
# A recipient that every MTA parses alike: no comment, no list or group, no route, and a domain of its own.
_RECIPIENT = re.compile(
    r'(?:"(?:[^"\\]|\\.)*"|[^\s"\\()<>@,;:\[\]]+)@(?:[^\s"\\()<>@,;:\[\]%!]+|\[[^\s"\\()<>@,;\[\]]+\])'
)
# Postfix accepts and forwards values that are long or contain an equals sign. After the queue, Postfix would bounce a
# message that is rejected here to its envelope sender, which may be forged.
_PARAMETER = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]{0,31})(?:=([^\s\x00-\x1f\x7f]+))?")
_FLAGS = frozenset({"SMTPUTF8"})
_OF_SENDER = frozenset({"SIZE", "BODY", "SMTPUTF8", "RET", "ENVID", "AUTH"})
_OF_RECIPIENT = frozenset({"NOTIFY", "ORCPT"})
ATTRIBUTES = ("NAME", "ADDR", "PORT", "PROTO", "HELO", "IDENT", "SOURCE")
MAX_XFORWARD_VALUE = 255
_UNAVAILABLE = frozenset({"[UNAVAILABLE]", "[TEMPUNAVAIL]"})
# Postfix leaves an equals sign in a value as it is.
_WORD = re.compile(r"([A-Za-z]{1,10})=([\x21-\x2a\x2c-\x7e\x80-\U0010ffff]|\+[0-9A-Fa-f]{2})*")
_CODED = re.compile(r"\+([0-9A-Fa-f]{2})")


class Rejection(Exception):
    """A rejected command, with its reply; `hang_up` ends the session."""

    def __init__(self, reply: str, *, hang_up: bool = False) -> None:
        super().__init__(reply)
        self.reply = reply
        self.hang_up = hang_up


class Sender(Struct, frozen=True):
    address: str  # "" is the null sender
    size: int = 0  # as announced; 0 if it was not
    eight_bit: bool = False
    utf8: bool = False
    notification: tuple[str, ...] = ()  # RET and ENVID, as received


class Recipient(Struct, frozen=True):
    address: str
    notification: tuple[str, ...] = ()  # NOTIFY and ORCPT, as received


def read_sender(argument: str | None, max_size: int) -> Sender:
    """Parse the argument of MAIL."""
    address, rest = _read_path(argument, "FROM:", "501 5.5.4 Syntax: MAIL FROM:<address>")
    given = _read_parameters(rest, _OF_SENDER)
    size = given.get("SIZE", "0")
    if not size.isdecimal() or len(size) > 20:
        raise Rejection("501 5.5.4 SIZE is a number")
    if int(size) > max_size:
        raise Rejection(f"552 5.3.4 Messages over {max_size} bytes are not taken")
    body = given.get("BODY", "7BIT").upper()
    if body not in ("7BIT", "8BITMIME"):
        raise Rejection("501 5.5.4 BODY is 7BIT or 8BITMIME")
    utf8 = "SMTPUTF8" in given
    _require_ascii(address, utf8)
    return Sender(address, int(size), body == "8BITMIME", utf8, _notification(given))


def read_recipient(argument: str | None, *, utf8: bool) -> Recipient:
    """Parse the argument of RCPT."""
    address, rest = _read_path(argument, "TO:", "501 5.5.4 Syntax: RCPT TO:<address>")
    if not address:
        raise Rejection("501 5.1.3 A recipient is needed")
    _require_ascii(address, utf8)
    if not _RECIPIENT.fullmatch(address) and address.lower() != "postmaster":
        raise Rejection("553 5.1.3 A recipient is written local@domain")
    return Recipient(address, _notification(_read_parameters(rest, _OF_RECIPIENT)))


def _read_path(argument: str | None, keyword: str, syntax: str) -> tuple[str, str]:
    """Split an argument into the address and the rest; Postfix forwards addresses with or without brackets."""
    if argument is None or argument[: len(keyword)].upper() != keyword:
        raise Rejection(syntax)
    text = argument[len(keyword) :].lstrip(" ")
    bracket = text.startswith("<")
    found = _ADDRESS.match(text, 1 if bracket else 0)
    address, rest = (found.group(), text[found.end() :]) if found else ("", text)
    if bracket:
        if not rest.startswith(">"):
            raise Rejection("553 5.1.3 The address cannot be read")
        rest = rest[1:]
    elif not address:
        raise Rejection(syntax)
    if rest and not rest.startswith(" "):
        raise Rejection("553 5.1.3 The address cannot be read")
    if len(address) > MAX_ADDRESS or _CONTROL.search(address):
        raise Rejection("553 5.1.3 The address cannot be read")
    if address.startswith("@"):  # a source route, which is obsolete (RFC 5321, appendix C)
        address = address.partition(":")[2]
    return address, rest


def _read_parameters(text: str, known: frozenset[str]) -> Mapping[str, str]:
    given: dict[str, str] = {}
    for word in text.split():
        found = _PARAMETER.fullmatch(word)
        if found is None:
            raise Rejection("501 5.5.4 A parameter cannot be read")
        name, value = found[1].upper(), found[2]
        if name not in known:
            raise Rejection("555 5.5.4 A parameter is not known here")
        if name in given or (value is None) != (name in _FLAGS):
            raise Rejection("501 5.5.4 A parameter is there twice, or lacks its value")
        given[name] = value or ""
    return given


def _notification(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the parameters of delivery status notifications, for the next hop."""
    return tuple(f"{name}={given[name]}" for name in ("RET", "ENVID", "NOTIFY", "ORCPT") if name in given)


def _require_ascii(address: str, utf8: bool) -> None:
    if not utf8 and not address.isascii():
        raise Rejection("553 5.6.7 An address outside ASCII needs SMTPUTF8")


class Forwarded(Struct, frozen=True):
    """The client of Postfix, from XFORWARD; `words` are the attributes as received, for the next hop."""

    address: str | None = None
    helo: str | None = None
    words: tuple[tuple[str, str], ...] = ()

    def extended_by(self, argument: str | None) -> "Forwarded":
        """Return the attributes after one more XFORWARD command."""
        words = dict(self.words)
        for word in (argument or "").split():
            name, value = _read_word(word)
            words[name] = value
        if not argument or not argument.strip():
            raise Rejection("501 5.5.4 Syntax: XFORWARD attribute=value ...")
        address, helo = _value(words.get("ADDR")), _value(words.get("HELO"))
        return Forwarded(_read_address(address), helo, tuple(words.items()))


def _read_word(word: str) -> tuple[str, str]:
    found = _WORD.fullmatch(word)
    if found is None or found[1].upper() not in ATTRIBUTES or len(word) > 4 * MAX_XFORWARD_VALUE:
        raise Rejection("501 5.5.4 An attribute of XFORWARD cannot be read")
    value = word.partition("=")[2]
    decoded = decode_xtext(value)
    if len(decoded) > MAX_XFORWARD_VALUE or _CONTROL.search(decoded):
        raise Rejection("501 5.5.4 An attribute of XFORWARD cannot be read")
    return found[1].upper(), value


def decode_xtext(value: str) -> str:
    """Decode xtext (RFC 3461, section 4); bytes that are not UTF-8 become surrogates."""
    coded = _CODED.sub(
        lambda found: chr(0xDC00 + int(found[1], 16)) if found[1] >= "8" else chr(int(found[1], 16)), value
    )
    return coded.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _value(text: str | None) -> str | None:
    decoded = decode_xtext(text) if text else ""
    return None if not decoded or decoded.upper() in _UNAVAILABLE else decoded


def _read_address(text: str | None) -> str | None:
    if text is None:
        return None
    bare = text[5:] if text[:5].upper() == "IPV6:" else text
    try:
        return str(ipaddress.ip_address(bare)) if "%" not in bare else None
    except ValueError:
        raise Rejection("501 5.5.4 ADDR of XFORWARD is not an address") from None
