"""Reports QR codes in the images and documents of a message, their targets, and texts in pictures.

Security: works on hostile pictures inside a killable worker; pictures, pages, bytes, pixels and time are bounded.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import ClassVar, NamedTuple

from msgspec import Struct

from mailwarden.analysis.analyzer import limit_each_kind
from mailwarden.analysis.links.hosts import HostKind, kind_of
from mailwarden.analysis.links.targets import destination, parties_of
from mailwarden.analysis.shipped_data import read_shipped
from mailwarden.analysis.text.patterns import TextPattern
from mailwarden.analysis.view import View
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import host_of
from mailwarden.model.evidence import Fact, Finding, Omitted
from mailwarden.model.place import Place

LITTLE_TEXT = 700

_NUMBER = re.compile(r"(?:tel|sms|smsto|mmsto):\s{0,3}(\+?[\d() .-]{5,20})", re.IGNORECASE)
# The letters of the GTUBE test line: recognition often misreads its digits and punctuation.
_TEST_LETTERS = "gtubestandard" + "antiubetestemail"
_NO_LETTER = re.compile("[^a-z]+")
_COINS = re.compile(r"(?:bitcoin|ethereum|litecoin|monero|tron|tether):([A-Za-z0-9]{20,100})", re.IGNORECASE)


class _File(Struct, frozen=True):
    scan: str
    account: str
    login: str
    order: str


class _Words(NamedTuple):
    """Words beside a code: of a scan, of an account, of a login, and the order to scan."""

    scan: TextPattern
    account: TextPattern
    login: TextPattern
    order: TextPattern


@cache
def _patterns() -> _Words:
    words = read_shipped("analyzers/images.yml", _File)
    # A fold of the file stands after a bar and is no part of a pattern.
    return _Words(
        *(
            TextPattern(each.strip().replace("| ", "|"))
            for each in (words.scan, words.account, words.login, words.order)
        )
    )


class ImagesAnalyzer:
    name: ClassVar[str] = "images"

    def examine(self, view: View) -> Iterator[Finding | Omitted]:
        return limit_each_kind(_look(view))


def _look(view: View) -> Iterator[Finding]:
    for picture in view.picture_texts:
        yield Finding("images.text", picture.place, {"words": picture.text[: SHOWN.word]})
        if _TEST_LETTERS in _NO_LETTER.sub("", picture.text.lower()):
            yield Finding("images.gtube", picture.place)
    for code in view.codes:
        yield from _judge(code.url, code.place, view) if code.url else _judge_other(code.text, code.place, view)
    if not view.codes and _asks_to_scan(view):
        yield Finding("images.qr-unreadable")


def _judge_other(text: str, place: Place, view: View) -> Iterator[Finding]:
    """Yield the finding of a code with a phone number or a payment instead of a link."""
    if coins := _COINS.match(text):
        yield Finding("images.qr-crypto-payment", place, {"address": coins[1][: SHOWN.fact]})
    elif (number := _NUMBER.match(text)) and _patterns().account.search(view.lower_text):
        yield Finding("images.qr-phone-number", place, {"number": number[1][:40]})


def _asks_to_scan(view: View) -> bool:
    """Return whether a code is to be scanned for an account's sake that stands in what could not be read."""
    words = _patterns()
    most = LITTLE_TEXT + len(view.subject) + LITTLE_TEXT
    beginning = view.text[: 4 * most]  # not inspection: a beginning that is too long says so of the whole text
    if len(" ".join(beginning.split())) > most:
        return False
    if not (view.files or any(page.document.images or "<svg" in page.lower for page in view.pages)):
        return False
    text = view.lower_text
    return len(text) <= most and bool(words.order.search(text)) and bool(words.account.search(text))


def _judge(url: str, place: Place, view: View) -> Iterator[Finding]:
    """Yield the findings of a code with a link; it leads its reader to an unprotected phone."""
    parties = parties_of(view)
    host = host_of(destination(url))
    base_facts: dict[str, Fact] = {"host": host, **({"url": url} if len(url) <= SHOWN.fact else {})}
    words = _patterns()
    yield Finding("images.qr-code", place, base_facts)
    if parties.is_third_party(host) or kind_of(host) is HostKind.SENDING:
        yield Finding("images.qr-unrelated-domain", place, base_facts)
        if len(view.own_text.strip()) < LITTLE_TEXT:
            yield Finding("images.qr-little-text", place, base_facts)
        if words.scan.search(view.lower_text):
            yield Finding("images.qr-scan-request", place, base_facts)
        if words.login.search(view.lower_text):
            yield Finding("images.qr-login", place, base_facts)
    if not parties.is_recipients(host) and words.account.search(view.lower_text):
        yield Finding("images.qr-account", place, base_facts)
