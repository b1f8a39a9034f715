"""Finds out what a PDF does and which links it has, from its own source and from pdfium's reading of it.

Security: hostile bytes; objects and actions are bounded by the message's limits, every pattern is linear, and
it never raises.
"""

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from mailwarden.files.pdf.document import Passwords, PdfClock, PdfReading, read_pdf
from mailwarden.files.pdf.objects import (
    ESCAPED_NAME,
    PdfObjects,
    decode_string,
    read_reference,
    skip_blank,
    unescape_name,
    unescape_names,
)
from mailwarden.files.pdf.scripts import DocumentScripts, is_harmless, look_at_scripts
from mailwarden.files.pdf.streams import TooLong, Undecodable, decode_stream
from mailwarden.message.coverage import Coverage
from mailwarden.message.urls import find_urls
from mailwarden.model.place import WHOLE_MESSAGE, Place

_OPENING = re.compile(rb"/(OpenAction|AA)(?![A-Za-z0-9])")
_PAGE_OPENS = re.compile(rb"/O(?![A-Za-z0-9])")  # of a page's own actions, O is the one that happens when it is shown
_KIND = re.compile(rb"/S\s{0,4}/([A-Za-z]{2,20})")
_NEXT = re.compile(rb"/Next(?![A-Za-z0-9])[\s\[]{0,9}")
_REFERENCES = re.compile(rb"\b\d{1,10}\s{1,9}\d{1,5}\s{1,9}R\b")

_SMALL_STREAM = 64  # a stream this short stays in the outline of a file
_URI = re.compile(rb"/URI(?![A-Za-z0-9])")
_FILE = re.compile(rb"/U?F(?![A-Za-z0-9])")
_FORM_SCRIPT = re.compile(r"<script\b[^<>]{0,500}>([^<]{1,1000000})<", re.IGNORECASE)
_EXPORTS = re.compile(r"exportDataObject|app\.launchURL|\bnLaunch\b")
# Only long words: short ones such as /JS stand in packed pictures by accident.
_WORDS = {
    "script": ((b"/JavaScript",), re.compile(rb"/JavaScript\b")),
    "launch": ((b"/Launch",), re.compile(rb"/S\s{0,4}/Launch\b")),
    "exports": (
        (b"exportDataObject", b"launchURL", b"nLaunch"),
        re.compile(rb"exportDataObject|app\.launchURL|\bnLaunch\b"),
    ),
    "elsewhere": ((b"/GoToR", b"/GoToE"), re.compile(rb"/S\s{0,4}/GoTo[RE]\b")),
    "opens": ((b"/OpenAction", b"/AA"), re.compile(rb"/OpenAction\b|/AA\s{0,4}(?:<<|\d)")),
    "embedded": ((b"/EmbeddedFile",), re.compile(rb"/EmbeddedFiles?\b")),
    "submits": ((b"/SubmitForm",), re.compile(rb"/SubmitForm\b")),
    "media": ((b"/RichMedia",), re.compile(rb"/RichMedia\b")),
    "encrypted": ((b"/Encrypt",), re.compile(rb"/Encrypt\b")),
}


def opening_actions(objects: PdfObjects, texts: Sequence[bytes]) -> frozenset[str]:
    """Return the kinds of the actions at opening; a script that only prints or fills in is `PrintScript`."""
    kinds: set[str] = set()
    seen: set[bytes] = set()
    found = (action for text in texts for action in _open_actions(text, objects))
    for action in objects.coverage.first(found, "pdf_actions", objects.place):
        kinds.update(_kinds_of(action, objects, seen))
    return frozenset(kinds)


def _open_actions(text: bytes, objects: PdfObjects) -> Iterator[bytes]:
    """Yield the actions that a source runs at opening."""
    for match in _OPENING.finditer(text):
        value = _value(text, match.end(), objects)
        if match[1] == b"OpenAction":
            yield value
        elif opens := _PAGE_OPENS.search(value):
            yield _value(value, opens.end(), objects)


def _value(text: bytes, position: int, objects: PdfObjects) -> bytes:
    """Return the dictionary that stands there, or the object that is named there."""
    position = skip_blank(text, position)
    if number := read_reference(text, position):
        return objects.find(number)
    return objects.dictionary(text, position) if text[position : position + 2] == b"<<" else b""


def _kinds_of(action: bytes, objects: PdfObjects, seen: set[bytes]) -> Iterator[str]:
    """Yield the kind of an action and of those that follow it."""
    waiting = [action]
    while waiting:
        action = waiting.pop()
        for kind in dict.fromkeys(_KIND.findall(action)):
            scripts = list(objects.scripts(action)) if kind == b"JavaScript" else []
            yield "PrintScript" if scripts and all(map(is_harmless, scripts)) else kind.decode("ascii")
        for following in _NEXT.finditer(action):
            end = action.find(b"]", following.end()) if b"[" in following[0] else following.end() + 30
            for reference in _REFERENCES.findall(action[following.end() : end if end >= 0 else None]):
                number = read_reference(reference, 0)
                if number not in seen:
                    seen.add(number)
                    waiting.append(objects.find(number))
                if b"[" not in following[0]:
                    break


class PdfScan(Struct, frozen=True):
    """The contents of a PDF: actions by name, links, names of files, and obfuscated names."""

    actions: frozenset[str] = frozenset()
    links: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    disguised: tuple[str, ...] = ()
    opening: frozenset[str] = frozenset()  # the kinds of the actions at opening
    scripts: DocumentScripts = DocumentScripts()
    reading: PdfReading = PdfReading()


def scan_pdf(
    content: bytes,
    passwords: Passwords = tuple,
    coverage: Coverage | None = None,
    place: Place = WHOLE_MESSAGE,
    clock: PdfClock | None = None,
) -> PdfScan:
    """Read one PDF by itself and through pdfium, and return the findings of both."""
    coverage = coverage or Coverage()
    clock = clock or PdfClock(coverage)
    reading = read_pdf(content, passwords, coverage, place, clock)
    names = _disguised_names(content)
    packed = list(_object_streams(content, coverage, place, escaped=bool(names)))
    outlines = [_outline(content) if reading.loaded else content, *packed, _outline(reading.copy)]
    texts = [unescape_names(text) if b"#" in text else text for text in outlines if text]
    objects = PdfObjects((content, reading.copy), packed, coverage, place)
    actions = {what for text in texts for what in _actions(text)}
    names |= dict.fromkeys(name for text in packed for name in _disguised_names(text))
    if reading.files:
        actions.add("embedded")
    forms = [script for script in _FORM_SCRIPT.findall(reading.forms) if script.strip()]
    if reading.scripts or forms:
        actions.add("script")
    if any(_EXPORTS.search(script) for text in texts for script in objects.scripts(text)):
        actions |= {"script", "exports"}  # a string may be written in digits, in which no word is found
    opening = opening_actions(objects, texts) if "opens" in actions else frozenset()
    scripts = look_at_scripts(objects, texts, reading.scripts) if "script" in actions else DocumentScripts()
    if forms and not scripts.acts and (acts := look_at_scripts(PdfObjects(()), (), forms).acts):
        scripts = DocumentScripts(runs=True, acts=acts)
    files = tuple(_files(texts, objects, reading, coverage, place))
    addresses = (name for name in files if "://" in name)  # forms are sent to, and files are opened from, an address
    return PdfScan(
        frozenset(actions),
        tuple(dict.fromkeys((*_links(texts, objects, reading, coverage, place), *addresses))),
        files,
        tuple(names),
        opening,
        scripts,
        reading,
    )


def _links(
    texts: Sequence[bytes], objects: PdfObjects, reading: PdfReading, coverage: Coverage, place: Place
) -> Iterator[str]:
    """Yield each address that the document leads to, once."""
    written = (url for text in texts for url in _values(text, _URI, objects))
    found = dict.fromkeys(url.strip() for url in (*reading.links, *coverage.first(written, "urls", place)))
    yield from (url for url in found if url)
    yield from (url for url in find_urls(reading.forms) if url not in found and "//www.xfa.org" not in url)


def _files(
    texts: Sequence[bytes], objects: PdfObjects, reading: PdfReading, coverage: Coverage, place: Place
) -> Iterator[str]:
    names = (name for text in texts for name in _values(text, _FILE, objects))
    yield from dict.fromkeys((*(name for name, _ in reading.files), *coverage.first(names, "files", place)))


def _values(text: bytes, key: re.Pattern[bytes], objects: PdfObjects) -> Iterator[str]:
    for match in key.finditer(text):
        if value := objects.string(text, match.end()):
            yield value


def _actions(text: bytes) -> Iterator[str]:
    for what, (marks, pattern) in _WORDS.items():
        if any(mark in text for mark in marks) and pattern.search(text):
            yield what


def _disguised_names(text: bytes) -> dict[str, None]:
    """Return the names of actions that are written with escapes, which no program needs."""
    found: dict[str, None] = {}
    for name in set(ESCAPED_NAME.findall(text)) if b"#" in text else ():
        plain = unescape_name(name)
        if any(word.match(plain) or word.match(b"/S " + plain) for _, word in _WORDS.values()) or plain == b"/ObjStm":
            found[decode_string(plain)] = None
    return found


def _outline(content: bytes) -> bytes:
    """Return a source without the data of its streams, unless they seem to hold objects."""
    pieces: list[bytes] = []
    taken = 0
    position = content.find(b"stream")
    while position >= 0:
        start = position + len(b"stream")
        end = content.find(b"endstream", start)
        if end < 0:
            break
        if content[position - 3 : position] != b"end" and end - start > _SMALL_STREAM:
            data = content[start:end]
            if b" obj" not in data:
                pieces.append(content[taken:start])
                taken = end
        position = content.find(b"stream", end + len(b"endstream"))
    if not pieces:
        return content
    return b"\n".join((*pieces, content[taken:]))


def _object_streams(content: bytes, coverage: Coverage, place: Place, *, escaped: bool) -> Iterator[bytes]:
    """Yield the decoded object streams, in which newer files keep their actions and links."""
    room = coverage.limits.pdf_unpacked
    if b"ObjStm" not in content and not escaped:
        return
    for dictionary, data in _streams(content):
        if b"ObjStm" not in dictionary and b"ObjStm" not in unescape_names(dictionary):
            continue
        try:
            decoded = decode_stream(unescape_names(dictionary), data, room)
        except TooLong:
            coverage.beyond("pdf_unpacked", place)
            return
        except Undecodable:
            continue  # pdfium reads it, or the whole file counts as damaged
        room -= len(decoded)
        yield decoded


def _streams(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the dictionary and the data of each stream."""
    position = content.find(b"stream")
    while position >= 0:
        if content[position - 3 : position] == b"end":
            position = content.find(b"stream", position + 6)
            continue
        begin = max(content.rfind(b"obj", max(position - 4_000, 0), position), 0)
        start = position + 6
        start += 2 if content[start : start + 2] == b"\r\n" else 1 if content[start : start + 1] in b"\r\n" else 0
        end = content.find(b"endstream", start)
        yield content[begin:position], content[start : end if end >= 0 else len(content)]
        if end < 0:
            return
        position = content.find(b"stream", end + 9)
