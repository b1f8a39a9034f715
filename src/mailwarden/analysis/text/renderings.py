"""Renders a part or a file as clients show it: as a web page, as text, as calendar entries, in every likely charset.

Security: works on hostile bytes inside a killable worker; limits that stop a reader are recorded in the coverage.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from mailwarden.analysis.text.calendars import Calendar, is_calendar, read_calendar
from mailwarden.files.rtf import read_rtf_text
from mailwarden.message.charsets import readings, unread_charset
from mailwarden.message.coverage import Coverage
from mailwarden.message.file_names import ending_of
from mailwarden.message.html import HtmlDocument
from mailwarden.message.html_links import skip_prolog
from mailwarden.message.message import Part
from mailwarden.model.place import Place

PAGE_TYPES = frozenset(
    {"text/html", "text/x-html", "application/xhtml+xml", "image/svg+xml", "text/enriched", "text/richtext",
     "application/vnd.wap.xhtml+xml", "text/vnd.wap.wml", "text/x-server-parsed-html", "application/html",
     "application/x-html"}
)  # fmt: skip
PAGE_ENDINGS = (".html", ".htm", ".xhtml", ".xht", ".shtml", ".mht", ".mhtml", ".svg")
_PAGE_NAMES = frozenset(
    {"html", "htm", "xhtml", "xht", "shtml", "svg", "hta", "phtml", "dhtml", "xhtm", "stm", "shtm", "mht", "mhtml"}
)
_RICH_TYPES = frozenset({"text/rtf", "application/rtf", "application/x-rtf", "application/msword-rtf"})
_XML_NAMES = frozenset({"xml", "xsl", "xslt", "xhtml", "xht", "rdf", "rss", "atom", "wsdl", "xbrl"})
_MARKUP = ("http://www.w3.org/1999/xhtml", "http://www.w3.org/2000/svg")
# How a page begins (MIME Sniffing, 7.1); some client shows such content as a page regardless of its type.
_PAGE_START = re.compile(r"<(?:!doctype html|html|head|body|script|svg|title|style|iframe|meta)[\s/>]", re.IGNORECASE)
_FRAGMENT_START = re.compile(r"<(?:a|b|br|div|font|form|h1|img|p|table|center|span)[\s/>]", re.IGNORECASE)
_NO_PAGES = frozenset({"text/csv", "text/css", "text/markdown"})
_START = 8_192
_PREFIX = re.compile(
    rf"xmlns:([A-Za-z_][\w.-]{{0,40}})\s{{0,9}}=\s{{0,9}}[\"'](?:{'|'.join(map(re.escape, _MARKUP))})[\"']"
)
_ENTITY = re.compile(r"<!ENTITY\s{1,20}([A-Za-z_][\w.-]{0,40})\s{1,20}(?:\"([^\"]{0,100000})\"|'([^']{0,100000})')")
_ROUNDS = 3  # entities inside entities
_FLOWED_BREAK = re.compile(r" \r?\n>{0,9}")


class Source(Struct, frozen=True):
    """The input of a rendering: the content of a part or of a file inside one."""

    part: Part
    name: str
    content: bytes
    media_type: str
    charsets: tuple[str, ...]
    place: Place
    attached: bool  # opened as a file, and not shown with the text of the message
    joins_lines: bool = False
    base: str = ""  # the address that relative ones belong to


class Rendering(Struct, frozen=True):
    """One reading of a source: markup, or text, or addresses outside both."""

    source: Source
    text: str
    is_page: bool
    first: bool = True  # of several readings the most likely one
    entries: tuple[str, ...] = ()  # the fields of a calendar that people are shown
    links: tuple[str, ...] = ()  # values that hold addresses and are not shown
    calendar: Calendar | None = None


class Page(Struct, frozen=True):
    """A web page of the message, parsed; `lower` is its source in lower case."""

    part: Part  # the MIME part that it came in
    name: str
    place: Place
    source: str
    document: HtmlDocument
    lower: str
    attached: bool
    first: bool = True  # False: another charset or client makes this page of the same bytes


def render(source: Source, coverage: Coverage) -> Iterator[Rendering]:
    """Yield the renderings of a source by clients; none if they show neither page nor text."""
    entries = is_calendar(source.media_type, source.name, source.content)
    rich = source.media_type in _RICH_TYPES or source.content[:5].lower() == b"{\\rtf"
    page = is_page_type(source)
    if not (entries or rich or page or _may_be_text(source, source.content)):
        return  # a file that is neither text nor page has no characters to cut
    content = coverage.cut(source.content, "html", source.place)
    if entries:
        yield from _render_calendar(source, content, coverage)
        return
    if rich:
        text, links = read_rtf_text(content, coverage, source.place)
        yield Rendering(source, text, is_page=False, links=links)
        return
    if label := unread_charset(content, source.charsets):
        coverage.unsupported(source.place, f"its charset {label} cannot be decoded")
    first = True
    for text in readings(content, source.charsets, page=True, saved=source.attached):
        markup = text if page else _markup_in(source, text)
        if markup:
            yield Rendering(source, _expanded(markup, coverage, source.place), is_page=True, first=first)
        if not page and source.media_type.startswith("text/"):
            yield Rendering(source, _unwrapped(text) if source.joins_lines else text, is_page=False, first=first)
        first = False


def is_page_type(source: Source) -> bool:
    return source.media_type in PAGE_TYPES or ending_of(source.name) in _PAGE_NAMES


def _may_be_text(source: Source, content: bytes) -> bool:
    """Return whether this can be text or a page: text by its type, XML, or markup without a known ending."""
    if source.media_type.startswith("text/") or source.media_type.endswith(("/xml", "+xml")):
        return True
    ending = ending_of(source.name)
    if ending in _XML_NAMES:
        return True
    start = content[:64].lstrip(b"\xef\xbb\xbf\xff\xfe\x00 \t\r\n\x1b")
    return not _is_known(ending) and start[:1] in (b"<", b"+", b"L")


def _is_known(ending: str) -> bool:
    """Return whether a program other than a browser opens this ending; words with a blank or digits are no ending."""
    return 1 < len(ending) <= 5 and ending.isascii() and ending.isalnum() and not ending.isdigit()


def _markup_in(source: Source, text: str) -> str:
    """Return the markup of a content that is not declared as a page, or ""."""
    begin = skip_prolog(text)
    if _PAGE_START.match(text, begin):
        return text
    start = text[:_START]  # not inspection: where a text says what it is
    if "<" in start and any(namespace in text for namespace in _MARKUP) and _is_xml(source, start):
        return text
    plain = source.media_type == "text/plain" and not source.attached
    if not plain and source.media_type not in _NO_PAGES and _FRAGMENT_START.match(text, begin):
        return text
    return ""


def _is_xml(source: Source, start: str) -> bool:
    is_named = source.media_type.endswith(("/xml", "+xml")) or ending_of(source.name) in _XML_NAMES
    return is_named or start.lstrip()[:5] == "<?xml"


def _expanded(text: str, coverage: Coverage, place: Place) -> str:
    """Write the markup of an XML document as HTML: prefixes of its namespaces, entities and CDATA undone."""
    if "xmlns" in text:
        for prefix in dict.fromkeys(match[1] for match in _PREFIX.finditer(text)):
            text = text.replace(f"<{prefix}:", "<").replace(f"</{prefix}:", "</")
    if "<!ENTITY" in text:
        entities = {match[1]: match[2] or match[3] or "" for match in _ENTITY.finditer(text)}
        for _ in range(_ROUNDS):
            for name, value in coverage.first(entities.items(), "xml_entities", place):
                if len(text) + text.count(f"&{name};") * len(value) > coverage.limits.html:
                    coverage.beyond("html", place)
                    return text
                text = text.replace(f"&{name};", value)
    if "<![CDATA[" in text and "<?xml" in text[:_START]:  # not inspection: where a text says what it is
        text = text.replace("<![CDATA[", "").replace("]]>", "")
    return text


def _render_calendar(source: Source, content: bytes, coverage: Coverage) -> Iterator[Rendering]:
    for number, text in enumerate(readings(content, source.charsets)):
        calendar = read_calendar(text, coverage, source.place)
        yield Rendering(
            source,
            "",
            is_page=False,
            first=number == 0,
            entries=calendar.entries,
            links=calendar.links,
            calendar=calendar,
        )
        for page in calendar.pages:
            yield Rendering(source, page, is_page=True, first=number == 0)


def _unwrapped(text: str) -> str:
    """Join the lines of flowed text whose spaces at the end are no part of it (RFC 3676, 4.5)."""
    return _FLOWED_BREAK.sub("", text)
