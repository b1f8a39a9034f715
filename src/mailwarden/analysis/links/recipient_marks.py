"""The forms in which the addresses of recipients may occur in a link."""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable
from functools import cached_property, lru_cache
from urllib.parse import unquote

import ahocorasick

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{12,1024}")


class RecipientMarks:
    """The forms in which the recipients' addresses may occur in a link."""

    def __init__(self, recipients: Iterable[str]) -> None:
        self._wanted = dict.fromkeys(
            recipient.lower() for recipient in recipients if "@" in recipient[1:-1] and len(recipient) <= 254
        )

    @cached_property
    def _words(self) -> "ahocorasick.Automaton | None":
        """The forms of the addresses, made when the first link is looked at."""
        if not self._wanted:
            return None
        words = ahocorasick.Automaton()
        for address in self._wanted:
            words.add_word(address, "plain")
            for text, how in _spellings(address):
                words.add_word(text, how)
        words.make_automaton()
        return words

    def find(self, url: str) -> str:
        """Return the form of a recipient's address in a link, or return ""."""
        if self._words is None:
            return ""
        ways = {how for _, how in self._words.iter(unquote(url).lower())}
        if ways:
            return "plain" if "plain" in ways else min(ways)
        for token in _BASE64.findall(url):
            decoded = _decode(token)
            if "@" in decoded and any(how == "plain" for _, how in self._words.iter(decoded)):
                return "base64"
        return ""


@lru_cache(maxsize=256)
def _spellings(address: str) -> tuple[tuple[str, str], ...]:
    data = address.encode("utf-8", "replace")
    return (
        (data.hex(), "hexadecimal"),
        (hashlib.md5(data, usedforsecurity=False).hexdigest(), "MD5"),
        (hashlib.sha1(data, usedforsecurity=False).hexdigest(), "SHA-1"),
        (hashlib.sha256(data).hexdigest(), "SHA-256"),
    )


def _decode(token: str) -> str:
    token = token.replace("-", "+").replace("_", "/")
    if len(token) % 4 == 1:
        token = token[:-1]
    try:
        return base64.b64decode(token + "=" * (-len(token) % 4)).decode("latin-1").lower()
    except (ValueError, binascii.Error):
        return ""
