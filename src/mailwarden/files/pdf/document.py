"""A PDF as pdfium reads it: a plain copy of its objects, its links, scripts, text and the files in it.

pdfium repairs, decrypts and unpacks as a viewer does. Its copy of a document has no encryption, no object streams, no
comments and no escapes, so the scan of a PDF's source reads both the file and this copy.

Security: pdfium is native code on hostile bytes: only inside a killable worker. Pages, links, files and bytes are
bounded by the message's limits, and a document that pdfium cannot read is recorded as missed.
"""

import ctypes
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.message.coverage import Coverage
from mailwarden.message.urls import find_urls
from mailwarden.model.place import WHOLE_MESSAGE, Place

if TYPE_CHECKING:
    from pypdfium2 import PdfDocument, PdfPage

_TEXT_PAGES = 3  # not inspection: phrases are searched in files of one or two pages; links on every page
_SMALLEST_FILE = 150  # bytes; a damaged file that is smaller shows nothing
# The search for codes opens and loads the rest again.
_KEPT_OPEN = 4  # not inspection: documents of a message that stay open for it
_KEPT_BYTES = 2_000_000  # not inspection: of one of them
_KEPT_PAGES = 3  # not inspection: pages that stay loaded

Passwords = Callable[[], Sequence[str]]  # asked for where a file needs one, because to find them costs time


def is_pdf(content: bytes) -> bool:
    """Return whether this is a PDF, by its header; viewers accept up to a kilobyte of other bytes before it."""
    return b"%PDF-" in content[:1_024]  # not inspection: viewers look no further (ISO 32000-1, annex H)


class OpenPdf:
    """A document that is open, with the first pages that were loaded; the last reader closes it."""

    def __init__(self, document: "PdfDocument") -> None:
        self.document = document
        self.is_closed = False
        self._pages: dict[int, PdfPage] = {}

    def load_page(self, number: int) -> "PdfPage":
        return self._pages.pop(number, None) or self.document[number]

    def release_page(self, number: int, page: "PdfPage") -> None:
        """Keep one of the first pages for the next reader, and close any other."""
        if number < _KEPT_PAGES:
            self._pages[number] = page
        else:
            page.close()

    def close(self) -> None:
        self.is_closed = True
        for page in self._pages.values():
            page.close()
        self._pages.clear()
        self.document.close()


class PdfReading(Struct, frozen=True):
    """The contents of one document as pdfium reads it."""

    loaded: bool = False
    locked: bool = False  # no password opens it
    password: str = ""  # the one that opens it, "" where it needs none
    copy: bytes = b""
    pages: int = 0
    letters: int = 0  # on the first pages
    text: str = ""
    links: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    forms: str = ""  # the XFA forms, as XML
    files: tuple[tuple[str, bytes], ...] = ()
    opened: OpenPdf | None = None  # for the search for codes; of a few small files only


class PdfClock:
    """The processor time that all PDF files of one message may take, and the number of those that stay open."""

    def __init__(self, coverage: Coverage) -> None:
        self.kept_open = 0
        self._coverage = coverage
        self._until = time.process_time() + coverage.limits.pdf_seconds

    def is_over(self, place: Place) -> bool:
        if time.process_time() <= self._until:
            return False
        self._coverage.beyond("pdf_seconds", place)
        return True


def open_pdf(content: bytes, passwords: Passwords) -> tuple["PdfDocument | None", str, bool]:
    """Open a document; return it, the password that it needs, and whether none of the passwords opens it."""
    import pypdfium2  # noqa: PLC0415 - takes longer to import than most messages take to examine

    locked = False
    for password in chain(("",), _later(passwords)):
        try:
            return pypdfium2.PdfDocument(content, password or None), password, False
        except pypdfium2.PdfiumError as error:
            if "password" not in str(error).lower():
                return None, "", locked
            locked = True
    return None, "", locked


def _later(passwords: Passwords) -> Iterator[str]:
    yield from passwords()


def read_pdf(content: bytes, passwords: Passwords, coverage: Coverage, place: Place, clock: PdfClock) -> PdfReading:
    """Read one document, and record unreadable parts."""
    if clock.is_over(place):
        return PdfReading()
    document, password, locked = open_pdf(content, passwords)
    if document is None:
        if locked:
            coverage.encrypted(place, "the PDF is encrypted, and the message does not give the password")
        elif len(content) >= _SMALLEST_FILE:
            coverage.damaged(place, "the PDF is damaged, and viewers may repair it in their own way")
        return PdfReading(locked=locked)
    opened = OpenPdf(document)
    try:
        reading = _Reader(opened, coverage, place, clock).read(password)
    except Exception as error:  # pdfium reports damage in many ways
        opened.close()
        coverage.damaged(place, f"the PDF cannot be read to its end ({type(error).__name__})")
        return PdfReading(loaded=False, password=password)
    if clock.kept_open < _KEPT_OPEN and len(content) <= _KEPT_BYTES:
        clock.kept_open += 1
        return replace(reading, opened=opened)
    opened.close()
    return reading


def attached_files(content: bytes, passwords: Passwords, coverage: Coverage) -> Iterator[tuple[str, bytes]]:
    """Yield the files inside a document; one that does not open is recorded by the reader of its links."""
    document, _, _ = open_pdf(content, passwords)
    if document is None:
        return
    opened = OpenPdf(document)
    try:
        yield from _Reader(opened, coverage, WHOLE_MESSAGE, PdfClock(coverage)).files()
    except Exception:  # as in `read_pdf`, which records it
        return
    finally:
        opened.close()


class _Reader:
    def __init__(self, opened: OpenPdf, coverage: Coverage, place: Place, clock: PdfClock) -> None:
        self._opened = opened
        self._document = opened.document
        self._coverage = coverage
        self._place = place
        self._clock = clock
        self._links: dict[str, None] = {}
        self._files: list[tuple[str, bytes]] = []
        self._letters = 0
        self._texts: list[str] = []

    def read(self, password: str) -> PdfReading:
        copy = self._copied()
        scripts = tuple(self._coverage.first(_scripts(self._document), "pdf_scripts", self._place))
        forms = self._coverage.cut(_forms(self._document), "pdf_script", self._place)
        with suppress(TypeError, ValueError):
            self._files += self._coverage.first(
                _attachments(self._document, self._coverage, self._place), "files", self._place
            )
        self._read_bookmarks()
        pages = len(self._document)
        for number in self._coverage.first(range(pages), "pdf_pages", self._place):
            if self._clock.is_over(self._place):
                break
            self._read_page(number)
        text = self._coverage.cut("\n".join(self._texts), "text", self._place)
        return PdfReading(
            True, False, password, copy, pages, self._letters, text,
            tuple(self._links), scripts, forms, tuple(self._files),
        )  # fmt: skip

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield the files of the document, and those of annotations where there may be any."""
        yield from self._coverage.first(_attachments(self._document, self._coverage, self._place), "files", self._place)
        if b"/FileAttachment" not in self._copied():
            return
        for number in self._coverage.first(range(len(self._document)), "pdf_pages", self._place):
            page = self._document[number]
            self._read_annotations(page)
            page.close()
        yield from self._files

    def _copied(self) -> bytes:
        """Return the document as pdfium writes it, without encryption."""
        import pypdfium2.raw as pdfium  # noqa: PLC0415 - as above

        blocks: list[bytes] = []

        def write(_: object, data: int, size: int) -> int:
            blocks.append(ctypes.string_at(data, size))
            return 1

        writer = pdfium.FPDF_FILEWRITE(version=1)
        writer.WriteBlock = type(writer.WriteBlock)(write)
        if not pdfium.FPDF_SaveAsCopy(self._document.raw, ctypes.byref(writer), pdfium.FPDF_REMOVE_SECURITY):
            self._coverage.damaged(self._place, "the PDF cannot be read to its end")
        return b"".join(blocks)

    def _add(self, url: str) -> None:
        if not url or url in self._links:
            return
        if len(self._links) >= self._coverage.limits.urls:
            self._coverage.beyond("urls", self._place)
            return
        self._links[url] = None

    def _read_page(self, number: int) -> None:
        try:
            page = self._opened.load_page(number)
        except Exception:  # a page that pdfium cannot load, other viewers may show
            self._coverage.damaged(self._place, f"page {number + 1} of the PDF cannot be read")
            return
        try:
            self._read_annotations(page)
            self._read_text(page, keep=number < _TEXT_PAGES)
        finally:
            self._opened.release_page(number, page)

    def _read_annotations(self, page: "PdfPage") -> None:
        import pypdfium2.raw as pdfium  # noqa: PLC0415 - as above

        position, link = ctypes.c_int(0), pdfium.FPDF_LINK()
        while pdfium.FPDFLink_Enumerate(page.raw, ctypes.byref(position), ctypes.byref(link)):
            self._read_action(pdfium.FPDFLink_GetAction(link))
        for number in range(pdfium.FPDFPage_GetAnnotCount(page.raw)):
            note = pdfium.FPDFPage_GetAnnot(page.raw, number)
            if not note:
                continue
            with suppress(Exception):
                if file := pdfium.FPDFAnnot_GetFileAttachment(note):
                    self._files += _attached(file, self._coverage, self._place)
            pdfium.FPDFPage_CloseAnnot(note)

    def _read_action(self, action: Any) -> None:  # noqa: ANN401 - a handle of a C library
        import pypdfium2.raw as pdfium  # noqa: PLC0415 - as above

        kind = pdfium.FPDFAction_GetType(action) if action else 0
        if kind == pdfium.PDFACTION_URI:
            buffer = _filled(lambda data, size: pdfium.FPDFAction_GetURIPath(self._document.raw, action, data, size))
            self._add(buffer.rstrip(b"\0").decode("utf-8", "replace"))
        elif kind in (pdfium.PDFACTION_LAUNCH, pdfium.PDFACTION_REMOTEGOTO):
            buffer = _filled(lambda data, size: pdfium.FPDFAction_GetFilePath(action, data, size))
            path = buffer.rstrip(b"\0").decode("utf-8", "replace")
            self._add(path if "://" in path else "")

    def _read_text(self, page: "PdfPage", *, keep: bool) -> None:
        """Read the addresses in a page's text, which viewers make clickable."""
        import pypdfium2.raw as pdfium  # noqa: PLC0415 - as above

        text_page = page.get_textpage()
        try:
            count = max(text_page.count_chars(), 0)
            if not count:
                return
            text = text_page.get_text_range(0, count)
            if keep:
                self._letters += count
                self._texts.append(text)
            lower = text.lower()
            if "http" not in lower and "www." not in lower and "://" not in lower:
                return
            for url in find_urls(text):
                self._add(url)
            found = pdfium.FPDFLink_LoadWebLinks(text_page.raw)
            for number in range(pdfium.FPDFLink_CountWebLinks(found)):
                size = pdfium.FPDFLink_GetURL(found, number, None, 0)
                wide = (ctypes.c_ushort * max(size, 1))()
                pdfium.FPDFLink_GetURL(found, number, wide, size)
                self._add(bytes(wide).decode("utf-16-le", "replace").rstrip("\0"))
            pdfium.FPDFLink_CloseWebLinks(found)
        finally:
            text_page.close()

    def _read_bookmarks(self) -> None:
        """Read where bookmarks lead; their tree may name itself, so that each is read once."""
        import pypdfium2.raw as pdfium  # noqa: PLC0415 - as above

        document = self._document.raw
        waiting = [pdfium.FPDFBookmark_GetFirstChild(document, None)]
        seen: set[int | None] = {None}
        while waiting:
            bookmark = waiting.pop()
            address = ctypes.cast(bookmark, ctypes.c_void_p).value
            if address in seen:
                continue
            if len(seen) > self._coverage.limits.pdf_objects:
                self._coverage.beyond("pdf_objects", self._place)
                return
            seen.add(address)
            self._read_action(pdfium.FPDFBookmark_GetAction(bookmark))
            waiting.append(pdfium.FPDFBookmark_GetNextSibling(document, bookmark))
            waiting.append(pdfium.FPDFBookmark_GetFirstChild(document, bookmark))


def _filled(call: Callable[[Any, int], int]) -> bytes:
    """Ask a C function for the size of its answer, and then for the answer."""
    size = call(None, 0)
    if not 0 < size < 1 << 24:
        return b""
    buffer = ctypes.create_string_buffer(size)
    call(buffer, size)
    return buffer.raw


def _wide(call: Callable[[Any, int], int]) -> str:
    """Ask a C function for a text in UTF-16."""
    import pypdfium2.raw as pdfium  # noqa: PLC0415 - as above

    data = _filled(lambda buffer, size: call(ctypes.cast(buffer, ctypes.POINTER(pdfium.FPDF_WCHAR)), size))
    return data.decode("utf-16-le", "replace").rstrip("\0")


def _scripts(document: "PdfDocument") -> Iterator[str]:
    import pypdfium2.raw as pdfium  # noqa: PLC0415 - as above

    for number in range(pdfium.FPDFDoc_GetJavaScriptActionCount(document.raw)):
        action = pdfium.FPDFDoc_GetJavaScriptAction(document.raw, number)
        if action:
            yield _wide(lambda data, size, action=action: pdfium.FPDFJavaScriptAction_GetScript(action, data, size))  # type: ignore[misc]
            pdfium.FPDFDoc_CloseJavaScriptAction(action)


def _forms(document: "PdfDocument") -> str:
    import pypdfium2.raw as pdfium  # noqa: PLC0415 - as above

    packets: list[str] = []
    for number in range(max(pdfium.FPDF_GetXFAPacketCount(document.raw), 0)):
        size = ctypes.c_ulong()
        pdfium.FPDF_GetXFAPacketContent(document.raw, number, None, 0, ctypes.byref(size))
        if 0 < size.value < 1 << 26:
            buffer = ctypes.create_string_buffer(size.value)
            pdfium.FPDF_GetXFAPacketContent(document.raw, number, buffer, size.value, ctypes.byref(size))
            packets.append(buffer.raw.decode("utf-8", "replace"))
    return "\n".join(packets)


def _attachments(document: "PdfDocument", coverage: Coverage, place: Place) -> Iterator[tuple[str, bytes]]:
    import pypdfium2.raw as pdfium  # noqa: PLC0415 - as above

    for number in range(pdfium.FPDFDoc_GetAttachmentCount(document.raw)):
        if file := pdfium.FPDFDoc_GetAttachment(document.raw, number):
            yield from _attached(file, coverage, place)


def _attached(file: Any, coverage: Coverage, place: Place) -> Iterator[tuple[str, bytes]]:  # noqa: ANN401 - a C handle
    """Yield the name and the content of a file in a document."""
    import pypdfium2.raw as pdfium  # noqa: PLC0415 - as above

    name = _wide(lambda data, size: pdfium.FPDFAttachment_GetName(file, data, size))
    size = ctypes.c_ulong()
    pdfium.FPDFAttachment_GetFile(file, None, 0, ctypes.byref(size))
    if size.value > coverage.limits.file_bytes:
        coverage.beyond("file_bytes", place)
        return
    buffer = ctypes.create_string_buffer(max(size.value, 1))
    pdfium.FPDFAttachment_GetFile(file, buffer, size.value, ctypes.byref(size))
    yield name, buffer.raw[: size.value]
