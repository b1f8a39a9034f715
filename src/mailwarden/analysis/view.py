"""The view of one message for analyzers: slow properties are computed once, at their first use.

Security: works on hostile content inside a killable worker; text, pages and links are bounded by the reader's limits.
"""

import re
from collections.abc import Iterator
from copy import copy
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.analysis.picture_text import PictureText, read_picture_texts
from mailwarden.analysis.pictures import Code, find_codes
from mailwarden.analysis.text.calendars import Calendar
from mailwarden.analysis.text.extraction import find_passwords, password_candidates
from mailwarden.analysis.text.folding import fold
from mailwarden.analysis.text.renderings import PAGE_ENDINGS, Page, Rendering, Source, render
from mailwarden.files.container import Opening
from mailwarden.files.file_types import is_body
from mailwarden.files.office.documents import SeenDocument, read_office_files
from mailwarden.files.pdf.document import PdfClock, is_pdf
from mailwarden.files.pdf.scan import PdfScan, scan_pdf
from mailwarden.files.unpacking import SeenFile, Unpacked, files_of, unpack
from mailwarden.message.addresses import Address, first_address, read_addresses, read_identity
from mailwarden.message.coverage import Coverage
from mailwarden.message.html import HtmlDocument, read_html
from mailwarden.message.limits import Limits
from mailwarden.message.message import Message, Part
from mailwarden.message.urls import find_bare_links, find_urls, host_of, registrable_domain
from mailwarden.message.white_space import pieces, squeeze
from mailwarden.model.envelope import Envelope
from mailwarden.model.place import Place, area

NOBODY = Envelope("", ())
WINDOW = 30_000  # characters of a text whose phrases are weighed together
_OVERLAP = 300  # a phrase and its sentence
# Fields of which clients make a button (RFC 2369).
_LINKED_FIELDS = ("list-unsubscribe", "list-subscribe", "list-help", "list-post", "list-archive")
_GAPS = re.compile(r"[\W_]+")  # everything but letters and digits
_ASCII_GAPS = bytes(code for code in range(128) if not chr(code).isalnum())
_ASCII_GAPS_IN_LINES = _ASCII_GAPS.replace(b"\n", b"")
_FEW_WORDS = 200  # characters that a second text may have beyond the first before it is one of its own


class SeenLink(Struct, frozen=True):
    """A link with the text that is seen; `domain` is the registrable domain, "" for an IP address."""

    url: str
    text: str
    host: str
    domain: str
    place: Place
    loose: bool = False  # only clients make it a link: an address in the text of a page, a bare name
    bare: bool = False  # a name without a scheme


class View:
    """The input of a local analyzer."""

    def __init__(self, message: Message, envelope: Envelope = NOBODY, coverage: Coverage | None = None) -> None:
        self.message = message
        self.envelope = envelope
        self.coverage = coverage or Coverage()
        self.recipients_read = False  # whether an analyzer asked who the recipients are

    @property
    def limits(self) -> Limits:
        return self.coverage.limits

    @cached_property
    def subject(self) -> str:
        return self.message.header("subject")

    @cached_property
    def sender(self) -> Address:
        """The sender in From, as every part of the product reads it."""
        sender = read_identity(self.message.header("from"))
        return Address(sender.name, sender.address)

    @cached_property
    def reply_to(self) -> Address:
        return first_address(self.message.header("reply-to"))

    def for_recipients(self, recipients: tuple[str, ...]) -> "View":
        """Return the same message for other recipients; properties computed so far are kept."""
        other = copy(self)
        other.envelope = replace(self.envelope, recipients=recipients)
        return other

    @property
    def recipients(self) -> tuple[str, ...]:
        """The recipients of the envelope, or those of To and Cc if there are none."""
        self.recipients_read = True
        return self.envelope.recipients or self.named_recipients

    @cached_property
    def named_recipients(self) -> tuple[str, ...]:
        """The addresses of To and Cc."""
        values = (*self.message.all_headers("to"), *self.message.all_headers("cc"))
        return tuple(address.address for value in values for address in read_addresses(value) if address.address)

    @cached_property
    def files(self) -> tuple[Part, ...]:
        """The parts that a reader shows as files."""
        return tuple(part for part in self.message.parts if not is_body(part))

    @cached_property
    def unpacked(self) -> tuple[Unpacked, ...]:
        """The parts that are files, each opened where it is a container."""
        return unpack(self.message.parts, Opening(self.coverage, self._password_candidates))

    def _password_candidates(self) -> Iterator[str]:
        return password_candidates(f"{self.subject}\n{self.own_text}", self.message.parts)

    @cached_property
    def opened_files(self) -> tuple[SeenFile, ...]:
        """Every file of the message at any depth, in one flat sequence; lists and analyzers use the same one."""
        return files_of(self.unpacked)

    @cached_property
    def passwords(self) -> tuple[str, ...]:
        """Texts of the message that may be the password of a file."""
        return find_passwords(f"{self.subject}\n{self.own_text}")

    @cached_property
    def pdfs(self) -> tuple[tuple[SeenFile, PdfScan], ...]:
        """Each PDF file, read; a copy of one in another part too, because lists allow files by their place."""
        clock = PdfClock(self.coverage)
        scans: dict[bytes, PdfScan] = {}
        found: dict[tuple[str, bytes], tuple[SeenFile, PdfScan]] = {}
        for file in self.opened_files:
            if is_pdf(file.content):
                if file.content not in scans:
                    scans[file.content] = scan_pdf(
                        file.content, lambda: self.passwords, self.coverage, file.place, clock
                    )
                found.setdefault((file.part.path, file.content), (file, scans[file.content]))
        return tuple(found.values())

    @cached_property
    def office_documents(self) -> tuple[SeenDocument, ...]:
        """Each Office document, read; an encrypted one and its plain form are two of them."""
        return read_office_files(self.opened_files, self.coverage)

    @cached_property
    def document_links(self) -> tuple[tuple[str, Place], ...]:
        """The links of PDF and Office files, each with its place; lists and analyzers use the same ones."""
        of_pdfs = ((url, file.place) for file, scan in self.pdfs for url in scan.links)
        of_office = ((url, seen.file.place) for seen in self.office_documents for url in seen.document.links)
        return tuple(dict.fromkeys((*of_pdfs, *of_office)))

    @cached_property
    def own_renderings(self) -> tuple[Rendering, ...]:
        """How clients show the parts of the message itself."""
        found = (each for part in self.message.parts for each in render(_source_of(part), self.coverage))
        return tuple(self.coverage.first(found, "pages", area("the message")))

    @cached_property
    def renderings(self) -> tuple[Rendering, ...]:
        """How clients show the parts of the message and the files inside them."""
        inner = (file for file in self.opened_files if file.inside and file.content)
        found = (
            each for file in inner for each in render(_source_of_file(file), self.coverage) if _is_opened(each, file)
        )
        return (*self.own_renderings, *self.coverage.first(found, "pages", area("the files")))

    @cached_property
    def pages(self) -> tuple[Page, ...]:
        """Every page of the message at any depth, those that data URIs carry included."""
        return (*self._own_pages, *self._read_pages(self.renderings[len(self.own_renderings) :]))

    @cached_property
    def unseen(self) -> int:
        """How many characters of the body's pages are not shown, too small or white."""
        return sum(page.document.unseen for page in self.pages if not page.attached)

    @cached_property
    def _own_pages(self) -> tuple[Page, ...]:
        return tuple(self._read_pages(self.own_renderings))

    def _read_pages(self, renderings: tuple[Rendering, ...]) -> Iterator[Page]:
        pages = (
            page
            for rendering in renderings
            if rendering.is_page
            for page in self._read_page(rendering, rendering.text, 0)
        )
        return self.coverage.first(pages, "pages", area("the message"))

    def _read_page(self, rendering: Rendering, source: str, depth: int) -> Iterator[Page]:
        where = rendering.source
        lower = source.lower()
        document = read_html(source, self.coverage, where.place, lower=lower, base=where.base)
        yield Page(where.part, where.name, where.place, source, document, lower, where.attached, rendering.first)
        if document.carried and depth >= self.limits.carried_depth:
            self.coverage.beyond("carried_depth", where.place)
            return
        for inner in document.carried:
            yield from self._read_page(rendering, inner, depth + 1)

    @cached_property
    def text(self) -> str:
        """The text that a person reads: of the body's page or else its plain text, of invitations and pictures."""
        inner = [page.document.text for page in self.pages[len(self._own_pages) :] if not page.attached and page.first]
        inner += [each.text for each in self._inner_texts if each.first]
        inner += [
            entry
            for rendering in self.renderings[len(self.own_renderings) :]
            if rendering.first
            for entry in rendering.entries
        ]
        inner += [picture.text for picture in self.picture_texts]
        return self.coverage.cut("\n".join(filter(None, (self.own_text, *inner))), "text", area("the text"))

    @cached_property
    def picture_texts(self) -> tuple[PictureText, ...]:
        """The texts in pictures that carry the message, where recognition is installed."""
        return tuple(read_picture_texts(self))

    @cached_property
    def own_text(self) -> str:
        """The text that a person reads in the message itself, without files."""
        shown = [page.document.text for page in self._own_pages if not page.attached and page.first]
        text = "\n".join(shown) if any(shown) else self.plain_text
        if self.entries:
            known = " ".join(text.split())
            text = "\n".join((text, *(entry for entry in self.entries if " ".join(entry.split()) not in known)))
        return self.coverage.cut(text, "text", area("the text"))

    @cached_property
    def entries(self) -> tuple[str, ...]:
        """The fields of attached calendars."""
        return tuple(entry for rendering in self.own_renderings if rendering.first for entry in rendering.entries)

    @cached_property
    def calendars(self) -> tuple[Calendar, ...]:
        """The calendars and contacts of the message at any depth, each reading of each."""
        return tuple(dict.fromkeys(rendering.calendar for rendering in self.renderings if rendering.calendar))

    @cached_property
    def plain_text(self) -> str:
        """The plain text of the body, as it is."""
        shown = (
            rendering.text
            for rendering in self.own_renderings
            if not (rendering.is_page or rendering.source.attached) and rendering.first
        )
        return self.coverage.cut("\n".join(filter(None, shown)), "text", area("the text"))

    @property
    def _inner_texts(self) -> Iterator[Rendering]:
        """Yield the texts of messages inside files."""
        inner = self.renderings[len(self.own_renderings) :]
        return (each for each in inner if not each.is_page and not each.source.attached and each.text)

    @cached_property
    def other_texts(self) -> tuple[str, ...]:
        """Texts that some clients show instead: an alternative, another charset, a page without hidden text."""
        known = _letters(self.text)
        found: dict[str, None] = {}
        for page in self.pages:
            if not page.attached:
                found |= dict.fromkeys(page.document.other_texts)
                found |= {} if page.first else {page.document.text: None}
        if self.plain_text and any(not page.attached for page in self._own_pages):
            lines = self.plain_text.splitlines()
            letters = zip(lines, _letters_of_each(lines), strict=True)
            rest = "\n".join(line for line, kept in letters if kept not in known)
            found |= {rest: None} if len(rest) > _FEW_WORDS else {}
        found |= {
            rendering.text: None
            for rendering in self.renderings
            if not (rendering.is_page or rendering.first or rendering.source.attached)
        }
        found |= {"\n".join(calendar.names): None for calendar in self.calendars}  # apart: many dilute no lure
        found.pop(self.text, None)
        return tuple(self.coverage.first(filter(None, found), "texts", area("the text")))

    @cached_property
    def lower_text(self) -> str:
        """Subject and body in lower case with single spaces, for phrases."""
        return squeeze(f"{self.subject}\n{self.text}".lower())

    @cached_property
    def folded_text(self) -> str:
        """Subject and body as phrases are compared with it."""
        return _fold(f"{self.subject} . {self.text}")

    @cached_property
    def folded_texts(self) -> tuple[str, ...]:
        """The text and its alternatives, folded, in windows whose phrases are weighed together."""
        others = (_fold(f"{self.subject} . {text}") for text in self.other_texts)
        return tuple(window for text in (self.folded_text, *others) for window in _windows(text))

    @cached_property
    def shown_length(self) -> int:
        """How many characters a person reads, hidden ones left out; a longer alternative dilutes no shorter one."""
        return min(len(self.folded_text), *map(len, map(_fold, self._seen_texts)), len(self.folded_text))

    @property
    def _seen_texts(self) -> Iterator[str]:
        return (text for page in self.pages if not page.attached for text in page.document.other_texts[:1])

    @cached_property
    def codes(self) -> tuple[Code, ...]:
        """The codes for cameras in pictures, documents and drawings."""
        return tuple(find_codes(self))

    @cached_property
    def links(self) -> tuple[SeenLink, ...]:
        """Every link that a client makes clickable or a camera opens, each address with each text once."""
        seen: dict[tuple[str, str], SeenLink] = {}
        for url, text, place, loose, bare in self._links():
            if (url, text) not in seen:
                host = host_of(url)
                seen[url, text] = SeenLink(url, text, host, registrable_domain(host), place, loose, bare)
        return tuple(self.coverage.first(seen.values(), "urls", area("the links")))

    @cached_property
    def loads(self) -> tuple[SeenLink, ...]:
        """Every address that a client loads when it shows the message or opens its pages."""
        seen: dict[str, SeenLink] = {}
        for page in self.pages:
            for load in page.document.loads:
                if load.href not in seen:
                    host = host_of(load.href)
                    seen[load.href] = SeenLink(load.href, "", host, registrable_domain(host), page.place)
        return tuple(self.coverage.first(seen.values(), "urls", area("the links")))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The addresses that are shown and lead elsewhere or nowhere: in the texts of links, and in headers."""
        found = dict.fromkeys(url for page in self.pages for url in _labels_of(page.document))
        found |= dict.fromkeys((*find_urls(self.subject), *find_bare_links(self.subject)))
        fields = (value for name in _LINKED_FIELDS for value in self.message.all_headers(name))
        found |= dict.fromkeys(url for value in fields for url in find_urls(value))
        return tuple(self.coverage.first(found, "urls", area("the links")))

    def _links(self) -> Iterator[tuple[str, str, Place, bool, bool]]:
        for page in self.pages:
            for link in page.document.links:
                yield link.href, link.text, page.place, False, False
        for page in self.pages:
            labels = frozenset(_labels_of(page.document))
            yield from self._links_in(page.document.text, page.place, labels, loose=True, bare=not page.attached)
            yield from self._links_in(page.document.joined_text, page.place, labels, loose=True)
        for rendering in self.renderings:
            if not rendering.is_page:
                yield from self._links_in(rendering.text, rendering.source.place, bare=not rendering.source.attached)
                for value in (*rendering.entries, *rendering.links):
                    yield from self._links_in(value, rendering.source.place)
        for code in self.codes:
            if code.url:
                yield code.url, "", code.place, False, False

    def _links_in(
        self, text: str, place: Place, but: frozenset[str] = frozenset(), *, loose: bool = False, bare: bool = False
    ) -> Iterator[tuple[str, str, Place, bool, bool]]:
        """Yield the addresses of a text that clients make links of."""
        yield from ((url, "", place, loose, False) for url in find_urls(text, self.coverage, place) if url not in but)
        if bare and "." in text:
            names = find_bare_links(text, self.coverage, place)
            yield from ((url, "", place, True, True) for url in names if url not in but)


def _labels_of(document: HtmlDocument) -> Iterator[str]:
    texts = "\n".join(link.text for link in document.links if "." in link.text)
    yield from find_urls(texts)
    yield from find_bare_links(texts)


def _source_of(part: Part) -> Source:
    attached = part.disposition == "attachment" or bool(part.name and not part.media_type.startswith("text/"))
    return Source(
        part,
        part.name,
        part.content,
        part.media_type,
        part.charsets,
        part.place,
        attached or _has_page_name(part),
        part.joins_lines,
        part.base,
    )


def _has_page_name(part: Part) -> bool:
    return any(name.lower().rstrip(". ").endswith(PAGE_ENDINGS) for name in part.names)


def _source_of_file(file: SeenFile) -> Source:
    return Source(
        file.part,
        file.name,
        file.content,
        file.media_type,
        file.charsets,
        file.place,
        not file.is_body,
        file.joins_lines,
        file.base,
    )


def _is_opened(rendering: Rendering, file: SeenFile) -> bool:
    """Return whether a rendering of an inner file counts: pages, calendar entries, and texts of a body."""
    return rendering.is_page or file.is_body or bool(rendering.entries or rendering.links)


def _windows(text: str) -> Iterator[str]:
    """Yield a text in pieces that overlap by a sentence, most often in one."""
    yield text[:WINDOW]  # not inspection: the windows below go on
    for start in range(WINDOW - _OVERLAP, len(text) - _OVERLAP, WINDOW - _OVERLAP):
        yield text[start : start + WINDOW]


def _fold(text: str) -> str:
    """Fold a text piece by piece; no rule of folding looks beyond a space."""
    return " ".join(filter(None, map(fold, pieces(text))))


def _letters_of_each(lines: list[str]) -> list[str]:
    """Return the letters and digits of each line; one pass for all lines is faster than one for each."""
    text = "\n".join(lines).lower()
    if lines and text.isascii():
        return text.encode("ascii").translate(None, _ASCII_GAPS_IN_LINES).decode("ascii").split("\n")
    return [_letters(line) for line in lines]


def _letters(text: str) -> str:
    """Return the letters and digits of a text in lower case."""
    lower = text.lower()
    if lower.isascii():
        return lower.encode("ascii").translate(None, _ASCII_GAPS).decode("ascii")
    return _GAPS.sub("", lower)
