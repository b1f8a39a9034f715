"""XFORWARD: what Postfix says of the client that it has the message from (Postfix's XFORWARD_README).

Security: believed, because only the networks of `clients` may connect; checked all the same, because what it says was
said by strangers.
"""

import ipaddress
import re

from msgspec import Struct

from mailwarden.guard.sources.smtp_commands import Refusal

ATTRIBUTES = ("NAME", "ADDR", "PORT", "PROTO", "HELO", "IDENT", "SOURCE")
MAX_VALUE = 255
_UNAVAILABLE = frozenset({"[UNAVAILABLE]", "[TEMPUNAVAIL]"})
# Postfix leaves an equals sign in a value as it is.
_WORD = re.compile(r"([A-Za-z]{1,10})=([\x21-\x2a\x2c-\x7e\x80-\U0010ffff]|\+[0-9A-Fa-f]{2})*")
_CODED = re.compile(r"\+([0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Forwarded(Struct, frozen=True):
    """What is known of the client; `words` are the attributes as they came, for the next hop."""

    address: str | None = None
    helo: str | None = None
    words: tuple[tuple[str, str], ...] = ()

    def extended_by(self, argument: str | None) -> "Forwarded":
        """Return what is known after one more XFORWARD command."""
        words = dict(self.words)
        for word in (argument or "").split():
            name, value = _read_word(word)
            words[name] = value
        if not argument or not argument.strip():
            raise Refusal("501 5.5.4 Syntax: XFORWARD attribute=value ...")
        address, helo = _value(words.get("ADDR")), _value(words.get("HELO"))
        return Forwarded(_read_address(address), helo, tuple(words.items()))


def _read_word(word: str) -> tuple[str, str]:
    found = _WORD.fullmatch(word)
    if found is None or found[1].upper() not in ATTRIBUTES or len(word) > 4 * MAX_VALUE:
        raise Refusal("501 5.5.4 An attribute of XFORWARD cannot be read")
    value = word.partition("=")[2]
    decoded = decode_xtext(value)
    if len(decoded) > MAX_VALUE or _CONTROL.search(decoded):
        raise Refusal("501 5.5.4 An attribute of XFORWARD cannot be read")
    return found[1].upper(), value


def decode_xtext(value: str) -> str:
    """Return what the text stands for (RFC 3461, section 4); bytes that are no UTF-8 stay recognisable as such."""
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
        raise Refusal("501 5.5.4 ADDR of XFORWARD is not an address") from None
