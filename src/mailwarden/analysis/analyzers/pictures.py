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
from mailwarden.analysis.qr_codes import Budget, read_drawing, read_pdf, read_picture
from mailwarden.analysis.qr_drawings import find_page_drawings, find_text_drawings
from mailwarden.analysis.view import View
from mailwarden.message.charsets import decode_text
from mailwarden.message.urls import host_of
from mailwarden.model.evidence import Fact, Finding

MAX_PICTURES = 10
MAX_DRAWINGS = 5
MAX_CODES = 5
SECONDS = 1.5
LITTLE_TEXT = 700
_TOLD = 200

_PICTURES = frozenset({"png", "jpeg", "gif", "webp", "bmp", "tiff"})
_CARRIED = re.compile(r"data:image/[a-z]{3,5};base64,([A-Za-z0-9+/=]{100,4000000}+)")
_BARE_HOST = re.compile(r"(?:[a-z0-9-]{1,63}\.){1,6}[a-z]{2,24}/\S{1,500}+$", re.IGNORECASE)


class _Words(Struct, frozen=True):
    scan: str
    account: str


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return what asks for a scan, and what speaks of an account."""
    text = files("mailwarden.analysis.analyzers").joinpath("pictures.yml").read_text("utf-8")
    words = convert(YAML(typ="safe").load(text), _Words)
    # A fold of the file stands after a bar and is no part of a pattern.
    return re.compile(words.scan.strip().replace("| ", "|")), re.compile(words.account.strip().replace("| ", "|"))


class PicturesAnalyzer:
    name: ClassVar[str] = "pictures"

    def examine(self, view: View) -> Iterator[Finding]:
        ties: Ties | None = None
        seen: set[str] = set()
        for text, place in _codes(view):
            url = _address(text)
            if not url or url in seen:
                continue
            seen.add(url)
            ties = ties or ties_of(view)
            yield from _judge(url, f"QR code in {place}", ties, view)
            if len(seen) >= MAX_CODES:
                return


def _judge(url: str, place: str, ties: Ties, view: View) -> Iterator[Finding]:
    """Tell of one code that leads somewhere: it is a link, and it takes its reader away from guarded machines."""
    host = host_of(url)
    told: dict[str, Fact] = {"host": host, **({"url": url} if len(url) <= _TOLD else {})}
    scan, account = _patterns()
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
    return f"http://{text}" if _BARE_HOST.match(text) else ""


def _codes(view: View) -> Iterator[tuple[str, str]]:
    budget = Budget(SECONDS)
    for content, place, is_pdf in islice(_pictures(view), MAX_PICTURES):
        if budget.spent:
            break
        if is_pdf:
            for number, text in read_pdf(content, budget):
                yield text, f"page {number} of {place}"
        else:
            for text in read_picture(content):
                yield text, place
    yield from _drawn(view)


def _pictures(view: View) -> Iterator[tuple[bytes, str, bool]]:
    """Yield the pictures and the documents, larger pictures first: a code is no icon."""
    parts = [(part, kind_by_content(part.content[:HEAD])) for part in view.message.parts if part.content]
    parts.sort(key=lambda each: -len(each[0].content))
    for part, kind in parts:
        if kind in _PICTURES or kind == "pdf":
            yield part.content, part.place, kind == "pdf"
    for page in view.pages:
        if "data:image/" in page.lower:
            source = decode_text(page.part.content, page.part.charset)
            for match in _CARRIED.finditer(source):
                try:
                    yield base64.b64decode(match[1] + "=" * (-len(match[1]) % 4)), page.part.place, False
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
