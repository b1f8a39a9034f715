"""What the pictures and documents of a message hold for a telephone's camera: QR codes, and where they lead.

Security: works on hostile pictures inside a killable worker; pictures, pages, bytes, pixels and time are bounded.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import ClassVar

from msgspec import Struct, convert
from ruamel.yaml import YAML

from mailwarden.analysis.file_types import HEAD, kind_by_content
from mailwarden.analysis.hosts import HostKind, kind_of
from mailwarden.analysis.link_target import Ties, look_at_address, ties_of
from mailwarden.analysis.moderation import few_of_each_kind
from mailwarden.analysis.qr_codes import Budget, read_drawing, read_pdf, read_picture, read_pieces
from mailwarden.analysis.qr_drawings import find_page_drawings, find_text_drawings
from mailwarden.analysis.qr_vectors import read_vectors
from mailwarden.analysis.view import View
from mailwarden.message.charsets import decode_text
from mailwarden.message.limits import LIMITS
from mailwarden.message.urls import find_urls, host_of
from mailwarden.model.evidence import Fact, Finding

MAX_PICTURES = 50  # within the time; equal ones are looked at once
MAX_PACKED = 5  # drawings inside of other files
MAX_DRAWINGS = 20
MAX_CODES = 20
SECONDS = 1.5
LITTLE_TEXT = 700
_TOLD = 200

_PICTURES = frozenset({"png", "jpeg", "gif", "webp", "bmp", "tiff"})
_CARRIED = re.compile(r"data:image/[a-z+]{3,7};base64,([A-Za-z0-9+/=\s]{100,4000000})")
_BARE_HOST = re.compile(r"(?:[a-z0-9-]{1,63}\.){1,6}[a-z]{2,24}/\S{1,500}$", re.IGNORECASE)
_NUMBER = re.compile(r"(?:tel|sms|smsto|mmsto):\s{0,3}(\+?[\d() .-]{5,20})", re.IGNORECASE)
_COINS = re.compile(r"(?:bitcoin|ethereum|litecoin|monero|tron|tether):([A-Za-z0-9]{20,100})", re.IGNORECASE)


class _Words(Struct, frozen=True):
    scan: str
    account: str
    order: str


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Return what speaks of a scan, what speaks of an account, and what orders to scan a code."""
    text = files("mailwarden.analysis.analyzers").joinpath("pictures.yml").read_text("utf-8")
    words = convert(YAML(typ="safe").load(text), _Words)
    # A fold of the file stands after a bar and is no part of a pattern.
    scan, account, order = (each.strip().replace("| ", "|") for each in (words.scan, words.account, words.order))
    return re.compile(scan), re.compile(account), re.compile(order)


class PicturesAnalyzer:
    name: ClassVar[str] = "pictures"

    def examine(self, view: View) -> Iterator[Finding]:
        return few_of_each_kind(_look(view))


def _look(view: View) -> Iterator[Finding]:
    ties: Ties | None = None
    seen: set[str] = set()
    for text, place in _codes(view):
        url = _address(text)
        if (url or text) in seen:
            continue
        seen.add(url or text)
        if url:
            ties = ties or ties_of(view)
            yield from _judge(url, f"QR code in {place}", ties, view)
        else:
            yield from _judge_other(text, f"QR code in {place}", view)
        if len(seen) >= MAX_CODES:
            return
    if not seen and _asks_to_scan(view):
        yield Finding("pictures.qr-not-read")


def _judge_other(text: str, place: str, view: View) -> Iterator[Finding]:
    """Tell of a code that leads to no page, but to a telephone or a purse."""
    if coins := _COINS.match(text):
        yield Finding("pictures.qr-coins", place, {"address": coins[1][:_TOLD]})
    elif (number := _NUMBER.match(text)) and _patterns()[1].search(view.lower_text[:5_000]):
        yield Finding("pictures.qr-number", place, {"number": number[1][:40]})


def _asks_to_scan(view: View) -> bool:
    """Tell whether a code is to be scanned for an account's sake that stands in what could not be read."""
    _, account, order = _patterns()
    text = view.lower_text[:5_000]
    if len(text) > LITTLE_TEXT + len(view.subject) + LITTLE_TEXT or not order.search(text) or not account.search(text):
        return False
    return bool(view.files) or any(page.document.images or "<svg" in page.lower for page in view.pages)


def _judge(url: str, place: str, ties: Ties, view: View) -> Iterator[Finding]:
    """Tell of one code that leads somewhere: it is a link, and it takes its reader away from guarded machines."""
    host = host_of(url)
    told: dict[str, Fact] = {"host": host, **({"url": url} if len(url) <= _TOLD else {})}
    scan, account, _ = _patterns()
    yield Finding("pictures.qr-code", place, told)
    if ties.is_stranger(host) or kind_of(host) is HostKind.SENDING:
        yield Finding("pictures.qr-stranger", place, told)
        if len(view.text.strip()) < LITTLE_TEXT:
            yield Finding("pictures.qr-little-text", place, told)
        if scan.search(view.lower_text[:20_000]):
            yield Finding("pictures.qr-call", place, told)
    if not ties.is_recipients(host) and account.search(view.lower_text[:5_000]):
        yield Finding("pictures.qr-account", place, told)
    kinds: set[str] = set()
    for what, facts in look_at_address(url, ties):
        if what not in kinds:
            kinds.add(what)
            cut = {name: value[:_TOLD] if isinstance(value, str) else value for name, value in facts.items()}
            yield Finding(f"urls.{what}", place, {**told, **cut})


def _address(text: str) -> str:
    """Return the address that a telephone opens for the text of a code, or ""."""
    text = text.strip()
    if host_of(text):
        return text
    if _BARE_HOST.match(text):
        return f"http://{text}"
    return next(iter(find_urls(text)), "") if "." in text else ""


def _codes(view: View) -> Iterator[tuple[str, str]]:
    budget = Budget(SECONDS)
    pieces: set[bytes] = set()
    found = False
    for content, place, is_pdf in islice(_pictures(view), MAX_PICTURES):
        if budget.spent:
            break
        if is_pdf:
            for number, text in read_pdf(content, budget):
                found = True
                yield text, f"page {number} of {place}"
            continue
        texts = read_picture(content)
        for text in texts:
            found = True
            yield text, place
        if not texts:
            pieces.add(content)
    if not found and pieces and not budget.spent and _patterns()[0].search(view.lower_text[:20_000]):
        for text in read_pieces([part.content for part in view.message.parts if part.content in pieces]):
            yield text, "pictures put together"
    yield from _drawn(view)


def _pictures(view: View) -> Iterator[tuple[bytes, str, bool]]:
    """Yield the pictures and the documents, larger pictures first: a code is no icon."""
    parts = [(part.content, part.place) for part in view.message.parts if part.content]
    parts += [(file.content, file.part.place) for file in view.opened_files if file.inside]
    known = [(content, place, kind_by_content(content[:HEAD])) for content, place in parts]
    known.sort(key=lambda each: -len(each[0]))
    seen: set[bytes] = set()
    for content, place, kind in known:
        if (kind in _PICTURES or kind == "pdf") and content not in seen:
            seen.add(content)
            yield content, place, kind == "pdf"
    for page in view.pages:
        if "data:image/" in page.lower:
            for content in _carried(decode_text(page.part.content, page.part.charset)):
                yield content, page.part.place, False


def _carried(source: str) -> Iterator[bytes]:
    for match in _CARRIED.finditer(source):
        plain = "".join(match[1].split())
        try:
            yield base64.b64decode(plain + "=" * (-len(plain) % 4))
        except (ValueError, binascii.Error):
            continue


def _drawn(view: View) -> Iterator[tuple[str, str]]:
    left = MAX_DRAWINGS
    for drawings, place in (
        (find_text_drawings(view.plain_text), "the text"),
        *((find_page_drawings(page.lower), page.part.place) for page in view.pages),
    ):
        for drawing in drawings:
            left -= 1
            if left < 0:
                return
            for text in read_drawing(drawing):
                yield text, place
    for source, place in _sources(view):
        for vectors in (source, *(content.decode("utf-8", "replace") for content in _carried(source))):
            for text in read_vectors(vectors):
                yield text, place


def _sources(view: View) -> Iterator[tuple[str, str]]:
    """Yield the pages with drawings, and the drawings that are packed, as they were written."""
    for page in view.pages:
        if "<svg" in page.lower or "data:image/svg" in page.lower:
            yield decode_text(page.part.content, page.part.charset), page.part.place
    packed = (file for file in view.opened_files if file.inside and file.name.lower().endswith(".svg"))
    for file in islice(packed, MAX_PACKED):
        yield decode_text(file.content[: LIMITS.html], "utf-8"), file.part.place
