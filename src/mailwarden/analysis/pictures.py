"""Finds the codes for cameras in a message: in pictures, in documents, cut into pieces, and drawn in a text.

Their addresses are links of the message (`View.links`), so that lists and all analyzers judge them like other links.

Security: works on hostile pictures inside a killable worker; pictures, pages, bytes, pixels and time are bounded.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Protocol

from msgspec import Struct
from PIL import Image

from mailwarden.analysis.text.renderings import Page
from mailwarden.files.container import SeenFile
from mailwarden.files.images import UNSUPPORTED, WORKING_PIXELS, PictureClock, picture_kind, read_frames
from mailwarden.files.metafiles import read_metafile
from mailwarden.files.pdf.scan import PdfScan
from mailwarden.files.qr_codes import is_photograph, read_drawing, read_image, read_pdf, read_picture, read_pieces
from mailwarden.files.text_drawings import find_page_drawings, find_text_drawings
from mailwarden.files.vector_drawings import read_vectors
from mailwarden.message.charsets import decode_text
from mailwarden.message.coverage import Coverage
from mailwarden.message.message import Message
from mailwarden.message.urls import find_urls, host_of
from mailwarden.model.place import THE_TEXT, Place, area

_CARRIED = re.compile(
    r"data:image/[a-z0-9.+-]{3,20}(?:;[a-z0-9=-]{1,40}){0,3};base64,\s{0,9}([A-Za-z0-9+/=_\s-]{100,})"
)
# Office documents keep previews of objects as metafiles, and write every drawing in today's formats too.
OFFICE_MEDIA = re.compile(r"(?:/media/|docProps/|ObjectReplacements/|Pictures/)[^/]{1,255}$", re.IGNORECASE)
_BARE_HOST = re.compile(r"(?:[a-z0-9-]{1,63}\.){1,6}[a-z]{2,24}/\S{1,500}$", re.IGNORECASE)
# Words beside pictures that a page may put together.
_SCAN = re.compile(r"\bqr\b|qr-?code|scan|numéris|smartphone|扫描|扫码|二维码|二維碼|スキャン|сканир|tara|skan")


class PictureSource(Protocol):
    """The parts of a message with pictures; `View` has them, and computes each at its first use."""

    message: Message
    coverage: Coverage

    @property
    def opened_files(self) -> tuple[SeenFile, ...]: ...

    @property
    def pages(self) -> tuple[Page, ...]: ...

    @property
    def pdfs(self) -> tuple[tuple[SeenFile, PdfScan], ...]: ...

    @property
    def plain_text(self) -> str: ...

    @property
    def lower_text(self) -> str: ...


class Code(Struct, frozen=True):
    """A code for cameras: its text, the address that a telephone opens for it or "", and its place."""

    text: str
    url: str
    place: Place


def find_codes(view: PictureSource) -> Iterator[Code]:
    """Yield the codes of a message, each address or text once."""
    seen: set[str] = set()
    for text, place in _codes(view):
        url = _address(text)
        if (url or text) in seen:
            continue
        seen.add(url or text)
        yield Code(text, url, place.code())
        if len(seen) >= view.coverage.limits.codes:
            view.coverage.beyond("codes", place)
            return


def _address(text: str) -> str:
    """Return the address that a telephone opens for the text of a code, or ""."""
    text = text.strip()
    if host_of(text):
        return text
    if _BARE_HOST.match(text):
        return f"http://{text}"
    return next(iter(find_urls(text)), "") if "." in text else ""


def _codes(view: PictureSource) -> Iterator[tuple[str, Place]]:
    """Yield the text and the place of each code: in pictures, in PDF files, cut into pieces, and drawn."""
    clock = PictureClock(view.coverage)
    pieces: dict[bytes, None] = {}
    found = False
    for content, kind, place in find_pictures(view):
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
    if not (place.inside and OFFICE_MEDIA.search(place.inside[-1])):
        clock.coverage.unsupported(place, f"the picture has a format that is not read ({kind})")
    return ()


def _joined(view: PictureSource, pieces: dict[bytes, None], clock: PictureClock) -> Iterator[str]:
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
    if len(every) > 1 and _SCAN.search(view.lower_text):
        yield from read_pieces(every)


def find_pictures(view: PictureSource) -> Iterator[tuple[bytes, str, Place]]:
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


def _drawn(view: PictureSource, clock: PictureClock) -> Iterator[tuple[str, Place]]:
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


def _sources(view: PictureSource) -> Iterator[tuple[str, Place]]:
    """Yield the pages with drawings, and the drawings that are packed, as they were written."""
    for page in view.pages:
        if "<svg" in page.lower or "data:image/svg" in page.lower:
            yield page.source, page.place
    for file in view.opened_files:
        if file.inside and file.name.lower().endswith(".svg"):
            content = view.coverage.cut(file.content, "html", file.place)
            yield decode_text(content, "utf-8"), file.place
