"""Computes the keys by which history groups similar messages into campaigns.

A text is compared by pairs of adjacent long words, without numbers, addresses, links and the names of recipients. The
checksum of each pair falls into one of 32 bins, and the smallest of each bin make the sketch (one permutation hashing).
Two adjacent bins are a key: near-identical texts have at least one in common. Files, links, subject and sender have one
key each; a key that unrelated mail shares often is joined with a second one.

Security: works on hostile content inside a killable worker; the number of words, links and files is bounded.
"""

import re
import struct
from collections.abc import Iterator
from hashlib import blake2b
from ipaddress import ip_address, ip_network
from itertools import pairwise
from operator import itemgetter
from urllib.parse import urlsplit
from zlib import crc32

from mailwarden.analysis.links.popular import Band, band_of
from mailwarden.analysis.text.folding import fold
from mailwarden.analysis.view import SeenLink, View
from mailwarden.lists.kinds.domains import free_mail_domains
from mailwarden.message.addresses import organisation_of, read_addresses
from mailwarden.model.similarity import BINS, Key, KeyKind, Similarity

CHARACTERS = 3_000  # of subject and text; enough to recognize a message, and what it costs
LONG = 4  # bytes of a word that counts; shorter words are alike in all texts
MIN_PAIRS = 6  # of a sketch; a shorter text says too little by itself
MIN_WORDS = 3  # of a short text that counts together with subject or sender
SUBJECT_WORDS, SUBJECT_LETTERS = 3, 12  # of a subject pattern; "Invoice" alone says nothing
BANDS = range(0, BINS, 6)  # the bins that are keys together with the next one
LINKS = 200  # that are looked at
FOREIGN_DOMAINS = 3  # of the links of a message with a link key; a newsletter links to more
SEGMENTS = 5  # of a path pattern
FILES = 50
MIN_FILE_BYTES = 256
RECIPIENTS = 20  # whose names are removed
NETWORKS = {4: 24, 6: 48}

_SHIFT = 32 - (BINS - 1).bit_length()  # the first bits of a checksum are its bin
_FOOTER = "__________"
_PUNCTUATION = b".,;:!?()\"'*<>[]"
# Bytes of other alphabets count as letters; which one does not matter for a checksum.
_TABLE = bytes(code if code < 128 else 97 + code % 26 for code in range(256))
_UNSPACED = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\u0e00-\u0e7f]{2})")
_PREFIXES = re.compile(r"^(?:\s*(?:(?:re|aw|fw|fwd|wg|sv|antw|tr|rv)\s*(?:\[\d+\])?:|\[[^\]]{1,30}\]))+", re.IGNORECASE)
_ANSWER = re.compile(r"^\s*(?:re|aw|sv|antw)\s*(?:\[\d+\])?:", re.IGNORECASE)
# Links at the end of all messages of a mailing list, a mailing service or a company.
_BOILERPLATE = re.compile(
    r"listinfo|unsubscri|opt-?out|preferences|abuse|privacy|disclaimer|terms|imprint|legal|policy"
)
_LITERAL = re.compile(r"[a-z][a-z_.-]{2,19}")
_PARTS = re.compile(rb"[a-z]{4,}")
_NUMBERS = struct.Struct(f">{BINS}H")
# Files that many unrelated messages carry: logos, signatures, contacts, invitations, quoted messages.
_COMMON_FILES = (
    "image/",
    "message/",
    "text/calendar",
    "text/vcard",
    "text/x-vcard",
    "application/pgp",
    "application/ics",
)
_SIGNATURES = ("application/pkcs7-signature", "application/x-pkcs7-signature")


def find_similarity(view: View) -> Similarity:
    """Return the keys of a message; none if it has too little content to compare."""
    names = _recipient_names(view)
    words = _words(_beginning(view.folded_text), names)
    pairs = set(map(crc32, map(b" ".join, pairwise(words))))
    subject = _subject_pattern(view, names)
    minima = _minima(pairs) if len(pairs) >= MIN_PAIRS else {}
    text = _band_keys(minima) if minima else _word_keys(view, words, subject)
    keys = (*text, *_file_keys(view), *_link_keys(view, subject), *_subject_keys(view, subject))
    return Similarity(tuple(dict.fromkeys(keys)), _sketch(minima))


def _beginning(text: str) -> str:
    """Return the part of the text that is compared: up to the line above the footer of a mailing list."""
    text = text[:CHARACTERS]  # not inspection: for comparison
    footer = text.find(_FOOTER)
    return text[:footer] if footer >= 0 else text


def _words(text: str, names: frozenset[bytes]) -> list[bytes]:
    """Return the long words of a folded text in order, as bytes; a word with a digit, `@` or `/` is left out."""
    if not text.isascii():
        text = _UNSPACED.sub(r" \1 ", text)
    words = text.encode("utf-8", "replace").translate(_TABLE, _PUNCTUATION).split()
    found = [word for word in filter(bytes.isalpha, words) if len(word) >= LONG]
    return found if names.isdisjoint(found) else [word for word in found if word not in names]


def _minima(checksums: set[int]) -> dict[int, int]:
    """Return the smallest checksum of each bin; a bin may be empty."""
    return {checksum >> _SHIFT: checksum for checksum in sorted(checksums, reverse=True)}


def _sketch(minima: dict[int, int]) -> bytes:
    """Return the last two bytes of each bin, never zero if it has a checksum."""
    numbers = [minima[each] & 0xFFFF or 1 if each in minima else 0 for each in range(BINS)]
    return _NUMBERS.pack(*numbers) if minima else b""


def _band_keys(minima: dict[int, int]) -> Iterator[Key]:
    """Yield the keys of the text; an empty bin takes the checksum of the next one that has one."""
    filled: list[int] = []
    following = minima[min(minima)]
    for number in reversed(range(BINS)):
        following = minima.get(number, following)
        filled.append(following)
    filled.reverse()
    for band in BANDS:
        number = filled[band] << 32 | filled[band + 1]
        yield Key(KeyKind.TEXT, number - (1 << 64) if number >> 63 else number)


def _file_keys(view: View) -> Iterator[Key]:
    """Yield the key of all attached files together, so that terms beside an invoice join nothing."""
    files = [part for part in view.files[:FILES] if not _is_common(part.media_type)]
    if sum(len(part.content) for part in files) >= MIN_FILE_BYTES:
        yield _key(KeyKind.FILES, *sorted({part.sha256 for part in files}))


def _is_common(media_type: str) -> bool:
    return media_type.startswith(_COMMON_FILES) or media_type in _SIGNATURES


def _link_keys(view: View, subject: str) -> Iterator[Key]:
    """Yield the key of a link to a rare domain of others, and of the first link with the subject."""
    own = _own_domains(view)
    foreign = [link for link in _links(view) if link.domain not in own and not link.bare]
    rare = [link for link in foreign if band_of(link.domain) is Band.UNKNOWN]
    if len({link.domain for link in rare}) <= FOREIGN_DOMAINS and not _is_answer(view):
        found = ((link.domain, path_pattern(link.url)) for link in rare if not _is_boilerplate(link.url))
        first = next(filter(itemgetter(1), found), None)
        yield from [_key(KeyKind.LINK, *first)] if first else []
    if subject and foreign:
        yield _key(KeyKind.TARGET, subject, foreign[0].domain, path_pattern(foreign[0].url))


def _links(view: View) -> list[SeenLink]:
    return [link for link in view.links[:LINKS] if link.domain]  # not inspection: for comparison


def _is_boilerplate(url: str) -> bool:
    return bool(_BOILERPLATE.search(url[:500].lower()))  # not inspection: for comparison


def path_pattern(url: str) -> str:
    """Return the path of a link with a star for each token; "" for the root."""
    try:
        path = urlsplit(url[:2_000]).path.lower()  # not inspection: for comparison
    except ValueError:
        return ""
    segments = [each for each in path.split("/") if each][:SEGMENTS]
    return "/".join(segment if _LITERAL.fullmatch(segment) else "*" for segment in segments)


def _own_domains(view: View) -> set[str]:
    """Return the domains of sender, recipients and mailing list, whose links are in all their mail."""
    addresses = (view.sender.address, view.reply_to.address, view.envelope.sender, *_recipients(view))
    own = {organisation_of(address) for address in addresses if address}
    fields = [
        value for name in ("list-id", "list-post", "list-unsubscribe") for value in view.message.all_headers(name)
    ]
    if fields:
        text = " ".join(fields)[:4_000].lower()  # not inspection: for comparison
        own |= {link.domain for link in _links(view) if link.domain in text}
    return own


def _subject_keys(view: View, subject: str) -> Iterator[Key]:
    if not subject:
        return
    if sender := _sender(view):
        yield _key(KeyKind.SENDER, subject, sender)
    if network := _network(view.envelope.remote_address):
        yield _key(KeyKind.NETWORK, subject, network)


def _word_keys(view: View, words: list[bytes], subject: str) -> Iterator[Key]:
    """Yield the keys of a short text; it counts only together with the subject or the sender."""
    if len(words) < MIN_WORDS:
        return
    text = b" ".join(words).decode("ascii")
    for second in (subject, _sender(view)):
        if second:
            yield _key(KeyKind.WORDS, text, second)


def _subject_pattern(view: View, names: frozenset[bytes]) -> str:
    """Return the words of the subject without numbers and names; "" for answers and if there are too few."""
    if _is_answer(view):
        return ""
    subject = view.subject[:300]  # not inspection: for comparison
    words = _words(fold(_PREFIXES.sub("", subject)), names)
    enough = len(words) >= SUBJECT_WORDS and sum(map(len, words)) >= SUBJECT_LETTERS
    return b" ".join(words).decode("ascii") if enough else ""


def _is_answer(view: View) -> bool:
    """Return whether subject and links may be those of a conversation."""
    return bool(_ANSWER.match(view.subject) or view.message.header("in-reply-to"))


def _sender(view: View) -> str:
    """Return the sender's domain, or the address if anyone can have one there."""
    address = view.sender.address.lower()
    domain = organisation_of(address)
    return address if domain in free_mail_domains() else domain


def _network(address: str | None) -> str:
    try:
        client = ip_address(address or "")
    except ValueError:
        return ""
    return str(ip_network((client, NETWORKS[client.version]), strict=False))


def _recipients(view: View) -> tuple[str, ...]:
    """Return some recipients; read apart from `View.recipients`, as keys are the same for all tenants."""
    return (*view.envelope.recipients[:RECIPIENTS], *view.named_recipients[:RECIPIENTS])


def _recipient_names(view: View) -> frozenset[bytes]:
    """Return the words of the names and addresses of recipients."""
    named = [
        address.name for value in view.message.all_headers("to")[:1] for address in read_addresses(value)[:RECIPIENTS]
    ]
    text = fold(" ".join((*named, *_recipients(view)))[:4_000])  # not inspection: for comparison
    return frozenset(_PARTS.findall(text.encode("utf-8", "replace").translate(_TABLE)))


def _key(kind: KeyKind, *parts: str) -> Key:
    text = "\0".join((kind, *parts)).encode("utf-8", "replace")
    return Key(kind, int.from_bytes(blake2b(text, digest_size=8).digest(), signed=True))
