"""Reports QR codes in the images and documents of a message, and their targets.

Security: works on hostile pictures inside a killable worker; pictures, pages, bytes, pixels and time are bounded.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import ClassVar

from msgspec import Struct, convert
from PIL import Image
from ruamel.yaml import YAML

from mailwarden.analysis.analyzer import limit_each_kind
from mailwarden.analysis.files.images import (
    UNSUPPORTED,
    WORKING_PIXELS,
    PictureClock,
    picture_kind,
    read_frames,
    read_metafile,
)
from mailwarden.analysis.files.qr_codes import (
    find_page_drawings,
    find_text_drawings,
    is_photograph,
    read_drawing,
    read_image,
    read_pdf,
    read_picture,
    read_pieces,
    read_vectors,
)
from mailwarden.analysis.links.hosts import HostKind, kind_of
from mailwarden.analysis.links.targets import Parties, look_at_address, parties_of
from mailwarden.analysis.text.patterns import TextPattern
from mailwarden.analysis.view import View
from mailwarden.message.charsets import decode_text
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import find_urls, host_of
from mailwarden.model.evidence import Fact, Finding, Omitted
from mailwarden.model.place import THE_TEXT, Place, area

LITTLE_TEXT = 700

_CARRIED = re.compile(
    r"data:image/[a-z0-9.+-]{3,20}(?:;[a-z0-9=-]{1,40}){0,3};base64,\s{0,9}([A-Za-z0-9+/=_\s-]{100,})"
)
# Office documents keep previews of objects as metafiles, and write every drawing in today's formats too.
_OFFICE_MEDIA = re.compile(r"(?:/media/|docProps/|ObjectReplacements/|Pictures/)[^/]{1,255}$", re.IGNORECASE)
_BARE_HOST = re.compile(r"(?:[a-z0-9-]{1,63}\.){1,6}[a-z]{2,24}/\S{1,500}$", re.IGNORECASE)
_NUMBER = re.compile(r"(?:tel|sms|smsto|mmsto):\s{0,3}(\+?[\d() .-]{5,20})", re.IGNORECASE)
_COINS = re.compile(r"(?:bitcoin|ethereum|litecoin|monero|tron|tether):([A-Za-z0-9]{20,100})", re.IGNORECASE)


class _Words(Struct, frozen=True):
    scan: str
    account: str
    order: str


@cache
def _patterns() -> tuple[TextPattern, TextPattern, TextPattern]:
    """Return what speaks of a scan, what speaks of an account, and what orders to scan a code."""
    text = files("mailwarden.analysis.analyzers").joinpath("pictures.yml").read_text("utf-8")
    words = convert(YAML(typ="safe").load(text), _Words)
    # A fold of the file stands after a bar and is no part of a pattern.
    scan, account, order = (each.strip().replace("| ", "|") for each in (words.scan, words.account, words.order))
    return TextPattern(scan), TextPattern(account), TextPattern(order)


class PicturesAnalyzer:
    name: ClassVar[str] = "pictures"

    def examine(self, view: View) -> Iterator[Finding | Omitted]:
        return limit_each_kind(_look(view))


def _look(view: View) -> Iterator[Finding]:
    parties: Parties | None = None
    seen: set[str] = set()
    for text, place in _codes(view):
        url = _address(text)
        if (url or text) in seen:
            continue
        seen.add(url or text)
        if url:
            parties = parties or parties_of(view)
            yield from _judge(url, place.code(), parties, view)
        else:
            yield from _judge_other(text, place.code(), view)
        if len(seen) >= view.limits.codes:
            view.coverage.beyond("codes", place)
            return
    if not seen and _asks_to_scan(view):
        yield Finding("pictures.qr-not-read")


def _judge_other(text: str, place: Place, view: View) -> Iterator[Finding]:
    """Yield the finding of a code with a phone number or a payment instead of a link."""
    if coins := _COINS.match(text):
        yield Finding("pictures.qr-coins", place, {"address": coins[1][: SHOWN.fact]})
    elif (number := _NUMBER.match(text)) and _patterns()[1].search(view.lower_text):
        yield Finding("pictures.qr-number", place, {"number": number[1][:40]})


def _asks_to_scan(view: View) -> bool:
    """Return whether a code is to be scanned for an account's sake that stands in what could not be read."""
    _, account, order = _patterns()
    most = LITTLE_TEXT + len(view.subject) + LITTLE_TEXT
    beginning = view.text[: 4 * most]  # not inspection: a beginning that is too long says so of the whole text
    if len(" ".join(beginning.split())) > most:
        return False
    if not (view.files or any(page.document.images or "<svg" in page.lower for page in view.pages)):
        return False
    text = view.lower_text
    return len(text) <= most and bool(order.search(text)) and bool(account.search(text))


def _judge(url: str, place: Place, parties: Parties, view: View) -> Iterator[Finding]:
    """Yield the findings of a code with a link; it leads its reader to an unprotected phone."""
    host = host_of(url)
    base_facts: dict[str, Fact] = {"host": host, **({"url": url} if len(url) <= SHOWN.fact else {})}
    scan, account, _ = _patterns()
    yield Finding("pictures.qr-code", place, base_facts)
    if parties.is_third_party(host) or kind_of(host) is HostKind.SENDING:
        yield Finding("pictures.qr-stranger", place, base_facts)
        if len(view.text.strip()) < LITTLE_TEXT:
            yield Finding("pictures.qr-little-text", place, base_facts)
        if scan.search(view.lower_text):
            yield Finding("pictures.qr-call", place, base_facts)
    if not parties.is_recipients(host) and account.search(view.lower_text):
        yield Finding("pictures.qr-account", place, base_facts)
    kinds: set[str] = set()
    for what, facts in look_at_address(url, parties):
        if what not in kinds:
            kinds.add(what)
            cut = {name: value[: SHOWN.fact] if isinstance(value, str) else value for name, value in facts.items()}
            yield Finding(f"urls.{what}", place, {**base_facts, **cut})


def _address(text: str) -> str:
    """Return the address that a telephone opens for the text of a code, or ""."""
    text = text.strip()
    if host_of(text):
        return text
    if _BARE_HOST.match(text):
        return f"http://{text}"
    return next(iter(find_urls(text)), "") if "." in text else ""


def _codes(view: View) -> Iterator[tuple[str, Place]]:
    """Yield the text and the place of each code: in pictures, in PDF files, cut into pieces, and drawn."""
    clock = PictureClock(view.coverage)
    pieces: dict[bytes, None] = {}
    found = False
    for content, kind, place in _pictures(view):
        if clock.is_over(place):
            break
        texts = _texts_of(content, kind, place, clock)
        for text in texts:
            found = True
            yield text, place
        if not texts:
            pieces[content] = None
    for file, scan in view.pdfs:
        if scan.reading.loaded:
            for number, text in read_pdf(file.content, clock, scan.reading.password, file.place, scan.reading.opened):
                found = True
                yield text, file.part.place.on_page(number)
    if not found and pieces:
        for text in _joined(view, pieces, clock):
            yield text, area("pictures put together")
    yield from _drawn(view, clock)


def _texts_of(content: bytes, kind: str, place: Place, clock: PictureClock) -> tuple[str, ...]:
    """Return the texts of the codes in one picture, or record that its format cannot be read."""
    if kind == "emf":
        return tuple(text for bitmap in read_metafile(content, clock.coverage, place) for text in read_image(bitmap))
    if kind not in UNSUPPORTED:
        return read_picture(content, kind, clock, place)
    if not (place.inside and _OFFICE_MEDIA.search(place.inside[-1])):
        clock.coverage.unsupported(place, f"the picture has a format that is not read ({kind})")
    return ()


def _joined(view: View, pieces: dict[bytes, None], clock: PictureClock) -> Iterator[str]:
    """Yield the codes of pictures that a page may put together: those of one size, or all where it says to scan."""
    sizes: dict[tuple[int, int], list[Image.Image]] = {}
    every: list[Image.Image] = []
    contents = [part.content for part in view.message.parts if part.content in pieces]
    if len(contents) < 2:
        return
    for content in clock.coverage.first(contents, "picture_pieces", area("the pictures")):
        if clock.is_over(area("the pictures")):
            return
        grey = next(read_frames(content, picture_kind(content), clock, area("the pictures")), None)
        if grey is not None and grey.width * grey.height <= WORKING_PIXELS:
            every.append(grey)
            sizes.setdefault((grey.width // 4, grey.height // 4), []).append(grey)
    for same in sizes.values():
        if len(same) > 1 and not all(map(is_photograph, same)):
            yield from read_pieces(same)
    if len(every) > 1 and _patterns()[0].search(view.lower_text):
        yield from read_pieces(every)


def _pictures(view: View) -> Iterator[tuple[bytes, str, Place]]:
    """Yield the pictures with their formats and places, larger ones first: a code is no icon."""
    files = [(part.content, part.place) for part in view.message.parts if part.content]
    files += [(file.content, file.place) for file in view.opened_files if file.inside]
    known = [(content, kind, place) for content, place in files if (kind := picture_kind(content))]
    known.sort(key=lambda each: -len(each[0]))
    seen: set[bytes] = set()
    for content, kind, place in known:
        if content not in seen:
            seen.add(content)
            yield content, kind, place
    for page in view.pages:
        if "data:image/" in page.lower:
            for content in _carried(page.source):
                if content not in seen and (kind := picture_kind(content)):
                    seen.add(content)
                    yield content, kind, page.place


def _carried(source: str) -> Iterator[bytes]:
    for match in _CARRIED.finditer(source):
        plain = "".join(match[1].split()).rstrip("=")
        try:
            yield base64.b64decode(plain + "=" * (-len(plain) % 4), altchars=b"-_" if "_" in plain else None)
        except (ValueError, binascii.Error):
            continue


def _drawn(view: View, clock: PictureClock) -> Iterator[tuple[str, Place]]:
    coverage = view.coverage
    drawings = (
        (drawing, place)
        for found, place in (
            (find_text_drawings(view.plain_text, coverage), THE_TEXT),
            *((find_page_drawings(page.lower, coverage, page.place), page.place) for page in view.pages),
        )
        for drawing in found
    )
    for drawing, place in coverage.first(drawings, "drawings", area("the text")):
        if clock.is_over(place):
            return
        for text in read_drawing(drawing):
            yield text, place
    for source, place in _sources(view):
        carried = (content for content in _carried(source) if not picture_kind(content))
        for vectors in (source, *(content.decode("utf-8", "replace") for content in carried)):
            if clock.is_over(place):
                return
            for text in read_vectors(vectors, coverage, place):
                yield text, place


def _sources(view: View) -> Iterator[tuple[str, Place]]:
    """Yield the pages with drawings, and the drawings that are packed, as they were written."""
    for page in view.pages:
        if "<svg" in page.lower or "data:image/svg" in page.lower:
            yield page.source, page.place
    for file in view.opened_files:
        if file.inside and file.name.lower().endswith(".svg"):
            content = view.coverage.cut(file.content, "html", file.place)
            yield decode_text(content, "utf-8"), file.place
