"""The search words of a message, by field: subject, sender, recipients and links.

A word is stored without accents and case, as a lexeme: the letter of its field and the word (`sinvoice`, `fbjorn`).
Queries match a lexeme or its beginning; queries and rows make their words with the same functions.

Security: the values come from hostile messages. The number and length of words are bounded, and nothing here raises.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from unicodedata import normalize
from uuid import UUID

from mailwarden.message.urls import normalize_host
from mailwarden.model.record import FinishedRequest
from mailwarden.search.terms import fold

MAX_LEXEMES = 500  # of one row; recipients and links come last
MAX_FIELD_WORDS = 60  # of a subject or a display name
WORD_LENGTH = 40
SUBJECT, SENDER, RECIPIENT, LINK = "s", "f", "t", "u"
FIELDS: Mapping[str, str] = {"subject": SUBJECT, "from": SENDER, "to": RECIPIENT, "link": LINK}
EVERYWHERE = tuple(FIELDS.values())
SEPARATOR = "\x1f"
PREFIX = "*"  # at the end of a pattern: the beginning of a lexeme is sufficient

_WORD = re.compile(r"[^\W_]+")
_ACCENTS = re.compile("[\u0300-\u036f]")
# Letters with a stroke and ligatures, which have no decomposition in Unicode.
_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "ħ": "h", "ŧ": "t", "ı": "i", "æ": "ae", "œ": "oe", "þ": "th"}
)
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})
# Scripts without spaces between words are stored and searched as pairs of characters.
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")


def plain(text: str) -> str:
    """Return the text without case and accents: `Björn` and `bjorn` become the same."""
    if text.isascii():
        return text.lower()
    bare = _ACCENTS.sub("", normalize("NFKD", fold(text))).translate(_LETTERS)
    return fold(normalize("NFC", bare))


def split_words(text: str) -> list[str]:
    """Return the words of a text in order, plain; scripts without spaces as pairs of characters."""
    found: list[str] = []
    for word in _WORD.findall(plain(text[:1_000])):
        if _UNSPACED.search(word) and len(word) > 2:
            found.extend(word[start : start + 2] for start in range(len(word) - 1))
        else:
            found.append(word[:WORD_LENGTH])
    return found[:MAX_FIELD_WORDS]


def spellings(text: str) -> tuple[str, ...]:
    """Return the text plain, and also with German umlauts as two letters, as many people and addresses spell them."""
    if text.isascii():
        return (plain(text),)
    written = fold(text).translate(_UMLAUTS)
    return tuple(dict.fromkeys((plain(text), plain(written))))


def tenant_lexeme(tenant: UUID) -> str:
    """Return the lexeme that every row of the tenant has, so that the index finds its rows only."""
    return f"@{tenant.hex}"


def lexemes_of(request: FinishedRequest) -> tuple[str, ...]:
    """Return every lexeme of a request once, its tenant's first."""
    return tuple(islice(dict.fromkeys(_all_lexemes(request)), MAX_LEXEMES))


def stored_words(request: FinishedRequest) -> str:
    """Return the lexemes as one text, which statements split at SEPARATOR."""
    return SEPARATOR.join(lexemes_of(request))


def lexemes_match(groups: Iterable[tuple[str, ...]], lexemes: Iterable[str]) -> bool:
    """Return whether each group has a pattern that one of the lexemes matches."""
    found = tuple(lexemes)
    return all(any(_matches(pattern, found) for pattern in group) for group in groups)


def patterns(word: str, fields: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns of a word in these fields; a single character matches itself only."""
    end = PREFIX if len(word) > 1 else ""
    return tuple(f"{field}{word}{end}" for field in fields)


def _matches(pattern: str, found: tuple[str, ...]) -> bool:
    if pattern.endswith(PREFIX):
        return any(lexeme.startswith(pattern[:-1]) for lexeme in found)
    return pattern in found


def _all_lexemes(request: FinishedRequest) -> Iterator[str]:
    summary, envelope = request.summary, request.envelope
    yield tenant_lexeme(request.tenant)
    yield from (SUBJECT + word for text in spellings(summary.subject) for word in split_words(text))
    yield from (SENDER + word for text in spellings(summary.from_name) for word in split_words(text))
    for address in (summary.from_address, envelope.sender):
        yield from _address_lexemes(SENDER, address)
    for recipient in envelope.recipients:
        yield from _address_lexemes(RECIPIENT, recipient)
    for host in summary.url_hosts:
        yield from _host_lexemes(LINK, host)


# Addresses and hosts recur in many messages.
@lru_cache(maxsize=8_192)
def _address_lexemes(field: str, address: str) -> tuple[str, ...]:
    local, _, domain = address[:1_000].rpartition("@")
    return (*(field + word for word in split_words(local)), *_host_lexemes(field, domain))


@lru_cache(maxsize=8_192)
def _host_lexemes(field: str, host: str) -> tuple[str, ...]:
    """Return the words of a host name without its last label, which says nothing."""
    labels = normalize_host(host[:255]).split(".")
    named = labels[:-1] or labels
    return tuple(dict.fromkeys(field + word for label in named for word in split_words(_unicode_label(label))))


def _unicode_label(label: str) -> str:
    """Return an internationalised label as people write it."""
    if not label.startswith("xn--"):
        return label
    try:
        return label[4:].encode("ascii").decode("punycode")
    except UnicodeError:
        return label
