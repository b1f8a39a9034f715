"""What a PDF does and where it leads, read from its bytes without a reader's trust in its structure.

Security: hostile bytes; streams are unpacked under limits of number and size, every pattern is linear, it never raises.
"""

import binascii
import re
import zlib
from collections.abc import Iterator

from msgspec import Struct

from mailwarden.analysis.pdf_opening import opening_actions
from mailwarden.analysis.pdf_scripts import DocumentScripts, look_at_scripts

MAX_BYTES = 20 * 1024 * 1024
MAX_STREAMS = 200  # of objects; pictures and pages are not unpacked
MAX_UNPACKED = 8 * 1024 * 1024
MAX_LINKS = 200
MAX_NAMES = 50
MAX_ESCAPED = 20_000  # names that are written plainly before actions are looked for

_ESCAPE = re.compile(rb"#([0-9a-fA-F]{2})")
_ESCAPED_NAME = re.compile(rb"/[A-Za-z0-9]{0,30}+#[0-9a-fA-F]{2}[A-Za-z0-9#]{0,60}+")
_URI = re.compile(rb"/URI\s{0,4}(?:\(((?:[^()\\]|\\.){1,4000}+)\)|<([0-9a-fA-F\s]{8,8000}+)>)", re.DOTALL)
_FILE = re.compile(rb"/(?:UF|F)\s{0,4}(?:\(((?:[^()\\]|\\.){1,500}+)\)|<([0-9a-fA-F\s]{8,1000}+)>)", re.DOTALL)
_BACKSLASH = re.compile(rb"\\(.)", re.DOTALL)
# Only long words: short ones such as /JS stand in packed pictures by accident.
_WORDS = {
    "script": re.compile(rb"/JavaScript\b"),
    "launch": re.compile(rb"/S\s{0,4}/Launch\b"),
    "exports": re.compile(rb"exportDataObject|app\.launchURL|\bnLaunch\b"),
    "elsewhere": re.compile(rb"/S\s{0,4}/GoTo[RE]\b"),
    "opens": re.compile(rb"/OpenAction\b|/AA\s{0,4}<<"),
    "embedded": re.compile(rb"/EmbeddedFiles?\b"),
    "submits": re.compile(rb"/SubmitForm\b"),
    "media": re.compile(rb"/RichMedia\b"),
    "encrypted": re.compile(rb"/Encrypt\b"),
}


class PdfScan(Struct, frozen=True):
    """What stands in a PDF: the actions by name, links, names of files, and names written so as not to be found."""

    actions: frozenset[str]
    links: tuple[str, ...]
    files: tuple[str, ...]
    disguised: tuple[str, ...]
    opening: frozenset[str] = frozenset()  # the kinds of what happens when it is opened
    scripts: DocumentScripts = DocumentScripts()


def scan_pdf(content: bytes) -> PdfScan:
    content = content[:MAX_BYTES]
    packed = list(_objects(content))
    texts = [content, *packed]
    actions: set[str] = set()
    links: dict[str, None] = {}
    files: dict[str, None] = {}
    disguised: dict[str, None] = {}
    for text in texts:
        for name in _ESCAPED_NAME.findall(text[:MAX_UNPACKED])[:1_000]:
            plain = _unescape(name)
            for what, word in _WORDS.items():
                if (word.match(plain) or word.match(b"/S " + plain)) and len(disguised) < MAX_NAMES:
                    actions.add(what)
                    disguised[plain.decode("latin-1")] = None
        actions.update(what for what, word in _WORDS.items() if word.search(text))
        for found, pattern, most in ((links, _URI, MAX_LINKS), (files, _FILE, MAX_NAMES)):
            for match in pattern.finditer(text):
                if len(found) >= most:
                    break
                found[_string(match[1], match[2])] = None
    if disguised:
        content, *packed = (_ESCAPED_NAME.sub(lambda match: _unescape(match[0]), text, MAX_ESCAPED) for text in texts)
    opening = opening_actions(content, packed) if "opens" in actions else frozenset()
    scripts = look_at_scripts(content, packed) if "script" in actions else DocumentScripts()
    return PdfScan(frozenset(actions), tuple(links), tuple(files), tuple(disguised), opening, scripts)


def _unescape(name: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), name)


def _objects(content: bytes) -> Iterator[bytes]:
    """Yield the unpacked streams of objects, in which newer files keep their actions and links."""
    room = MAX_UNPACKED
    position = 0
    for _ in range(MAX_STREAMS):
        position = content.find(b"/ObjStm", position)
        start = content.find(b"stream", position, position + 1_000) if position >= 0 else -1
        if position < 0:
            return
        position += 1
        if start < 0:
            continue
        start += len(b"stream") + (2 if content[start + 6 : start + 8] == b"\r\n" else 1)
        try:
            unpacked = zlib.decompressobj().decompress(content[start : start + MAX_UNPACKED], room)
        except zlib.error:
            continue
        room -= len(unpacked)
        yield unpacked
        if room <= 0:
            return


def _string(literal: bytes | None, digits: bytes | None) -> str:
    if literal is not None:
        data = _BACKSLASH.sub(rb"\1", literal)
    else:
        plain = b"".join((digits or b"").split())
        data = binascii.unhexlify(plain + b"0" * (len(plain) % 2))
    if data.startswith((b"\xfe\xff", b"\xff\xfe")):
        return data.decode("utf-16", "ignore")
    return data.decode("latin-1")
