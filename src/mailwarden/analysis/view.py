"""One message as analyzers look at it: what is dear to make is made once, when the first of them asks for it.

Security: works on hostile content inside a killable worker; text, pages and links are bounded by the reader's limits.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import islice

from msgspec import Struct

from mailwarden.analysis.bodies import is_body
from mailwarden.analysis.calendar_entries import read_entries
from mailwarden.analysis.file_types import HEAD, WEB_PAGE, ending_of, kind_by_content
from mailwarden.analysis.folding import fold
from mailwarden.analysis.office_files import SeenDocument, read_office_files
from mailwarden.analysis.passwords import find_passwords
from mailwarden.analysis.pdf_document import PdfClock, is_pdf
from mailwarden.analysis.pdf_scan import PdfScan, scan_pdf
from mailwarden.analysis.unpacking import SeenFile, Unpacked, files_of, unpack
from mailwarden.message.addresses import Address, first_address, read_addresses
from mailwarden.message.charsets import decode_text
from mailwarden.message.coverage import Coverage
from mailwarden.message.html import HtmlDocument, read_html
from mailwarden.message.identity import read_identity
from mailwarden.message.limits import LIMITS, Limits
from mailwarden.message.message import Message, Part
from mailwarden.message.urls import find_urls, host_of, registrable_domain
from mailwarden.model.envelope import Envelope

MAX_TEXT = 200_000
MAX_FOLDED = 30_000
MAX_PAGES = 50
PAGE_TYPES = frozenset({"text/html", "application/xhtml+xml", "image/svg+xml"})
PAGE_ENDINGS = (".html", ".htm", ".xhtml", ".xht", ".shtml", ".mht", ".mhtml", ".svg")

NOBODY = Envelope("", ())


class Page(Struct, frozen=True):
    """A part that is a web page, parsed; `lower` is its source in lower case."""

    part: Part
    document: HtmlDocument
    lower: str
    attached: bool


class SeenLink(Struct, frozen=True):
    """A link with the text that is seen; `domain` is the one that somebody registered, "" for an address."""

    url: str
    text: str
    host: str
    domain: str
    place: str


class View:
    """What a local analyzer is given."""

    def __init__(self, message: Message, envelope: Envelope = NOBODY, coverage: Coverage | None = None) -> None:
        self.message = message
        self.envelope = envelope
        self.coverage = coverage or Coverage()

    @property
    def limits(self) -> Limits:
        return self.coverage.limits

    @cached_property
    def subject(self) -> str:
        return self.message.header("subject")[:998]

    @cached_property
    def sender(self) -> Address:
        """Who the message says it is from, as every part of the product reads it."""
        sender = read_identity(self.message.header("from"))
        return Address(sender.name, sender.address)

    @cached_property
    def reply_to(self) -> Address:
        return first_address(self.message.header("reply-to"))

    @cached_property
    def recipients(self) -> tuple[str, ...]:
        """Whom it is for: the envelope's recipients, or To and Cc where there are none."""
        if self.envelope.recipients:
            return self.envelope.recipients
        values = (*self.message.all_headers("to"), *self.message.all_headers("cc"))
        return tuple(each.address for value in values for each in read_addresses(value) if each.address)[:1_000]

    @cached_property
    def files(self) -> tuple[Part, ...]:
        """The parts that a reader shows as files."""
        return tuple(part for part in self.message.parts if not is_body(part))

    @cached_property
    def unpacked(self) -> tuple[Unpacked, ...]:
        """The parts that are files, each opened where it is an archive."""
        return unpack(self.message.parts, f"{self.subject}\n{self.text}")

    @cached_property
    def opened_files(self) -> tuple[SeenFile, ...]:
        """Every file of the message at any depth, in one flat sequence; lists and analyzers use the same one."""
        return files_of(self.unpacked)

    @cached_property
    def passwords(self) -> tuple[str, ...]:
        """What the message may give as the password of a file."""
        return find_passwords(f"{self.subject}\n{self.text}")

    @cached_property
    def pdfs(self) -> tuple[tuple[SeenFile, PdfScan], ...]:
        """Each PDF file, read; a copy of one in another part too, because lists allow files by their place."""
        clock = PdfClock(self.coverage)
        scans: dict[bytes, PdfScan] = {}
        found: dict[tuple[str, bytes], tuple[SeenFile, PdfScan]] = {}
        for file in self.opened_files:
            if is_pdf(file.content):
                if file.content not in scans:
                    scans[file.content] = scan_pdf(file.content, self.passwords, self.coverage, file.place, clock)
                found.setdefault((file.part.path, file.content), (file, scans[file.content]))
        return tuple(found.values())

    @cached_property
    def office_documents(self) -> tuple[SeenDocument, ...]:
        """Each Office document, read; one that a password opens, once more as what it is then."""
        return read_office_files(self.opened_files, self.passwords, self.coverage)

    @cached_property
    def document_links(self) -> tuple[tuple[str, str], ...]:
        """The links of PDF and Office files, each with its place; lists and analyzers use the same ones."""
        of_pdfs = ((url, file.place) for file, scan in self.pdfs for url in scan.links)
        of_office = ((url, seen.file.place) for seen in self.office_documents for url in seen.document.links)
        return tuple(dict.fromkeys((*of_pdfs, *of_office)))

    @cached_property
    def pages(self) -> tuple[Page, ...]:
        return tuple(_page(part) for part in islice(filter(is_page, self.message.parts), MAX_PAGES))

    @property
    def pages_left_out(self) -> int:
        """How many pages nobody looks at."""
        return max(0, sum(map(is_page, self.message.parts)) - MAX_PAGES)

    @cached_property
    def text(self) -> str:
        """What a person reads: the body's page or else its plain text, and what an invitation says beyond it."""
        shown = [page.document.text for page in self.pages if not page.attached]
        text = "\n".join(shown) if any(shown) else self.plain_text
        if self.entries:
            known = " ".join(text.split())
            text = "\n".join((text, *(entry for entry in self.entries if " ".join(entry.split()) not in known)))
        return text[:MAX_TEXT]

    @cached_property
    def entries(self) -> tuple[str, ...]:
        """What the entries of attached calendars say, field by field."""
        return read_entries(self.message.parts)

    @cached_property
    def plain_text(self) -> str:
        """The plain text of the body, as it is."""
        parts = (part for part in self.message.parts if part.media_type == "text/plain" and is_body(part))
        return "\n".join(decode_text(part.content[: LIMITS.html], part.charset) for part in parts)[:MAX_TEXT]

    @cached_property
    def lower_text(self) -> str:
        """Subject and body in lower case with single spaces, for phrases."""
        return " ".join(f"{self.subject}\n{self.text}".lower().split())

    @cached_property
    def folded_text(self) -> str:
        """The beginning of subject and body as phrases are compared with it: folded, cut."""
        return fold(f"{self.subject[:500]} . {self.text[:MAX_FOLDED]}")

    @cached_property
    def links(self) -> tuple[SeenLink, ...]:
        """Every link of body and attached pages, each address with each text once, within bounds."""
        seen: dict[tuple[str, str], SeenLink] = {}
        for url, text, place in self._links():
            host = host_of(url)
            if (url, text) not in seen:
                seen[url, text] = SeenLink(url, text, host, registrable_domain(host), place)
                if len(seen) >= LIMITS.urls:
                    break
        return tuple(seen.values())

    def _links(self) -> Iterator[tuple[str, str, str]]:
        for page in self.pages:
            for link in page.document.links:
                yield link.href, link.text, page.part.place
        for url in find_urls(self.plain_text):
            yield url, "", "the text"
        for url in find_urls("\n".join(self.entries)[:MAX_TEXT]) if self.entries else ():
            yield url, "", "the calendar"


def is_page(part: Part) -> bool:
    if part.media_type in PAGE_TYPES or part.name.lower().endswith(PAGE_ENDINGS):
        return True
    # A file without an ending opens as what it is.
    nameless = part.disposition == "attachment" and not ending_of(part.name)
    return nameless and kind_by_content(part.content[:HEAD]) == WEB_PAGE


def _page(part: Part) -> Page:
    text = decode_text(part.content, part.charset)
    attached = part.disposition == "attachment" or part.name.lower().endswith(PAGE_ENDINGS)
    lower = text.lower()
    return Page(part, read_html(text, lower=lower), lower, attached)
