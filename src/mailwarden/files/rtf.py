"""Reads RTF: compressed by Outlook (MS-OXRTFCP, MS-OXRTFEX), shown as text, and as a document with objects.

Security: reads hostile bytes inside a killable worker; text, objects and fields are bounded by the limits of the
message or of the caller, patterns are linear, and nothing raises.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from mailwarden.files.office.compound import SIGNATURE, packed_file, read_compound
from mailwarden.message.charsets import codec_for, decode_text
from mailwarden.message.coverage import Coverage
from mailwarden.message.urls import find_urls
from mailwarden.model.place import WHOLE_MESSAGE, Place

_COMPRESSED, _PLAIN = b"LZFu", b"MELA"
_DICTIONARY = (
    rb"{\rtf1\ansi\mac\deff0\deftab720{\fonttbl;}{\f0\fnil \froman \fswiss \fmodern \fscript \fdecor MS Sans "
    rb"SerifSymbolArialTimes New RomanCourier{\colortbl\red0\green0\blue0"
    b"\r\n"
    rb"\par \pard\plain\f0\fs20\b\i\u\tab\tx"
)
_RING = 4_096
_PIECE = 65_536
_OUTLOOK_TOKEN = re.compile(
    rb"\\'(?P<hex>[0-9A-Fa-f]{2})|\\(?P<word>[A-Za-z]+)(?P<number>-?\d+)? ?|\\(?P<symbol>[^A-Za-z])"
    rb"|(?P<brace>[{}])|(?P<text>[^\\{}\r\n]+)|[\r\n\\]"
)
_OUTLOOK_BREAKS = {b"par": "\r\n", b"line": "\r\n", b"tab": "\t", b"lquote": "‘", b"rquote": "’", b"ldblquote": "“",
           b"rdblquote": "”", b"bullet": "•", b"endash": "–", b"emdash": "—"}  # fmt: skip
_SKIPPED = frozenset({b"fonttbl", b"colortbl", b"stylesheet", b"info", b"pict", b"object", b"pntext", b"header",
                      b"footer", b"listtable", b"themedata"})  # fmt: skip

# RTF 1.9.1: a control word with its number, a hexadecimal character, a control symbol, a brace, or text.
_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|[\r\n]+|([^\\{}\r\n]+)"
)
_UNSHOWN = frozenset(
    (  # noqa: SIM905 - as a list of quoted words it would fill the screen
        "fonttbl colortbl stylesheet info pict objdata themedata colorschememapping latentstyles datastore generator "
        "filetbl listtable listoverridetable rsidtbl xmlnstbl mmathPr"
    ).split()
)
_BREAKS = frozenset({b"par", b"line", b"tab", b"cell", b"row", b"page", b"sect"})
_CODE_PAGE = re.compile(rb"\\ansicpg(\d{1,5})")
_ADDRESS = re.compile(r"HYPERLINK\s+(?:\\[a-z]\s+)*\"?([^\"\s}]+)", re.IGNORECASE)

DDE_FIELD = re.compile(r"\bDDE(?:AUTO)?\b", re.IGNORECASE)

_TEMPLATE = re.compile(rb"\\\*\\template\s{1,9}((?:https?:|ftp:|file:|\\\\)[^{}\s]{1,2000})", re.IGNORECASE)
_ACTIVE_OBJECT = re.compile(rb"\\obj(?:ocx|autlink|update|link)\b")
_OBJECT_DATA = re.compile(rb"\\objdata\b")
_FIELD = re.compile(rb"\\fldinst\b")
_FIELD_RESULT = b"\\fldrslt"
_PICTURE = re.compile(rb"\\(?:pngblip|jpegblip)\b")
_NOT_HEX = re.compile(rb"[^0-9a-fA-F]")
_CONTROL = re.compile(rb"\\(?:bin\d{0,10}|[a-z]{1,32}-?\d{0,10}) ?|\\'[0-9a-f]{2}|\\\*")
_HEX_CHARACTER = re.compile(rb"\\'([0-9a-fA-F]{2})")
_INCLUDED = re.compile(r"INCLUDE(?:PICTURE|TEXT)\s{1,9}\"?((?:https?:|ftp:|file:|\\\\)[^\"\s]{1,2000})", re.IGNORECASE)
_EQUATION = (b"equation.", bytes.fromhex("02ce020000000000c000000000000046"), b"equation native")


def unpack_rtf(packed: bytes) -> Iterator[bytes]:
    """Yield decompressed RTF piece by piece; truncated data ends it."""
    kind = packed[8:12]
    if kind == _PLAIN:
        yield packed[16:]
        return
    if kind != _COMPRESSED:
        return
    ring = bytearray(_DICTIONARY.ljust(_RING, b" "))
    write = len(_DICTIONARY)
    position, out = 16, bytearray()
    while position < len(packed):
        control = packed[position]
        position += 1
        for bit in range(8):
            if position >= len(packed):
                break
            if control >> bit & 1:
                reference = int.from_bytes(packed[position : position + 2], "big")
                position += 2
                offset, length = reference >> 4, (reference & 15) + 2
                if offset == write % _RING:  # the end of the text
                    yield bytes(out)
                    return
            else:
                ring[write % _RING] = packed[position]
                offset, length = write, 1
                position += 1
            for step in range(length):  # a reference may reach into what it writes itself
                byte = ring[(offset + step) % _RING]
                ring[(write + step) % _RING] = byte
                out.append(byte)
            write += length
        if len(out) > _PIECE:
            yield bytes(out)
            out.clear()
    yield bytes(out)


def read_outlook_rtf(rtf: bytes) -> tuple[str, bool]:
    """Return the page that an RTF text was made from, or else its plain text; True if it is a page."""
    is_page = b"\\fromhtml" in rtf[:4_096]  # not inspection: RTF says at its beginning what it was made from
    return "".join(_text_of(rtf, is_page=is_page)), is_page


def _text_of(rtf: bytes, *, is_page: bool) -> Iterator[str]:
    states: list[tuple[bool, bool]] = []
    shown, muted = True, False  # muted: text for RTF readers only
    starred = False
    after_unicode = 0
    for token in _OUTLOOK_TOKEN.finditer(rtf):
        brace, word = token["brace"], token["word"]
        if brace == b"{":
            states.append((shown, muted))
        elif brace == b"}":
            shown, muted = states.pop() if states else (True, False)
        elif token["symbol"] == b"*":
            starred = True
            continue
        elif word == b"htmlrtf":
            muted = token["number"] != b"0"
        elif word in _SKIPPED or (starred and word is not None):
            shown = word == b"htmltag"
        elif word == b"u" and token["number"] and shown and not muted:
            yield chr(int(token["number"][:7]) % 65_536).encode("utf-16-le", "replace").decode("utf-16-le", "replace")
            after_unicode = 1
        elif shown and not muted:
            text = _plain(token, skip=after_unicode)
            after_unicode = 0
            yield text
        starred = False


def _plain(token: re.Match[bytes], *, skip: int) -> str:
    if token["hex"]:
        return "" if skip else bytes.fromhex(token["hex"].decode()).decode("cp1252", "replace")
    if token["text"]:
        return token["text"][skip if token["text"].startswith(b"?") else 0 :].decode("cp1252", "replace")
    if token["word"]:
        return _OUTLOOK_BREAKS.get(token["word"], "")
    symbol = token["symbol"] or b""
    return {b"~": "\u00a0", b"_": "-", b"-": ""}.get(symbol, symbol.decode("latin-1"))


def read_rtf_text(content: bytes, coverage: Coverage, place: Place) -> tuple[str, tuple[str, ...]]:
    """Return the text, fields included, and the addresses of its HYPERLINK fields."""
    page = _CODE_PAGE.search(content[:4_096])  # not inspection: where RTF names its code page
    charset = f"cp{page[1].decode()}" if page else "cp1252"
    text = _read(content, charset if codec_for(charset) else "cp1252")
    text = coverage.cut(text, "text", place)
    return text, tuple(dict.fromkeys(match[1] for match in _ADDRESS.finditer(text)))


def _read(content: bytes, charset: str) -> str:
    pieces: list[str] = []
    waiting = bytearray()
    depth, hidden = 0, 0  # `hidden`: the depth of a destination that is not shown
    skip = 0  # characters that stand for a Unicode character in readers that know none
    for match in _TOKEN.finditer(content):
        word, number, code, symbol, brace, plain = match.groups()
        if brace:
            depth += 1 if brace == b"{" else -1
            hidden = 0 if hidden and depth < hidden else hidden
        elif word is not None:
            if word.decode() in _UNSHOWN and not hidden:
                hidden = depth
            elif word == b"u" and number and not hidden:
                pieces += (decode_text(bytes(waiting), charset), chr(int(number) % 0x10000))
                waiting.clear()
                skip = 1
            elif word in _BREAKS:
                waiting += b"\n"
            elif word == b"bin" and number:
                continue
        elif hidden:
            continue
        elif code:
            waiting += b"" if skip else bytes.fromhex(code.decode())
            skip = 0
        elif symbol:
            waiting += symbol if symbol in b"\\{}" else b" " if symbol == b"~" else b""
        elif plain:
            waiting += plain[skip:]
            skip = 0
    pieces.append(decode_text(bytes(waiting), charset))
    return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class OfficeDocument(Struct, frozen=True):
    """The capabilities of a document when it is opened."""

    macros: bool = False
    code: str = ""
    macro_sheets: bool = False
    encrypted: bool = False
    packages: tuple[tuple[str, bytes], ...] = ()  # files that are packed into it, with their contents where known
    media: tuple[tuple[str, bytes], ...] = ()  # pictures that no archive reader unpacks
    remote: tuple[tuple[str, str], ...] = ()  # external content that it loads: the type of relation and the address
    dde: str = ""  # the program that it talks to
    exploit: str = ""
    active: bool = False  # it holds an object that comes alive by itself
    links: tuple[str, ...] = ()  # clickable
    letters: int = -1  # of a text; -1 where they are not counted


def read_rtf_document(content: bytes, coverage: Coverage | None = None, place: Place = WHOLE_MESSAGE) -> OfficeDocument:
    """Look at the objects of a rich text; their hexadecimal text is torn by control words to hide from scanners."""
    coverage = coverage or Coverage()
    exploit = ""
    packages: list[tuple[str, bytes]] = []
    remote: list[tuple[str, str]] = []
    macros = False
    objects = list(_objects(content, coverage, place))
    for data in objects:
        lower = data.lower()
        if not exploit and any(mark in lower for mark in _EQUATION):
            exploit = "the equation editor"
        if b"package\0" in lower:
            position = lower.find(b"\x02\x00", lower.find(b"package\0"))
            packages += packed_file(data[max(position - 4, 0) :]) if position >= 0 else ()
        start = data.find(SIGNATURE)
        if start >= 0:
            inner = read_compound(data[start:], coverage, place)
            packages += inner.packages
            remote += (("oleobject", target) for target in inner.remote)
            macros = macros or inner.macros
    if objects and not content.startswith(b"{\\rtf"):
        exploit = exploit or "a torn beginning"
    nameless = not packages and b"objclass package" in content.lower()
    active = bool(objects) and (nameless or bool(_ACTIVE_OBJECT.search(content)))
    remote += (("attachedtemplate", match[1].decode("latin-1")) for match in _TEMPLATE.finditer(content))
    fields = list(_fields(content, coverage, place))
    remote += (("oleobject", match[1]) for field in fields for match in _INCLUDED.finditer(field))
    dde = next((field for field in fields if DDE_FIELD.search(field)), "")
    links = dict.fromkeys(url for field in fields for url in find_urls(field))
    pictures = tuple(("", data) for data in _pictures(content, coverage, place))
    return OfficeDocument(
        macros=macros,
        exploit=exploit,
        packages=tuple(packages),
        media=pictures,
        remote=tuple(remote),
        active=active,
        dde=dde,
        links=tuple(links),
    )


def _objects(content: bytes, coverage: Coverage, place: Place) -> Iterator[bytes]:
    """Yield the data of each object: everything up to the next one that can be hexadecimal text."""
    starts = [match.end() for match in coverage.first(_OBJECT_DATA.finditer(content), "office_members", place)]
    for start, end in zip(starts, (*starts[1:], len(content)), strict=False):
        yield _decode_hex(content[start:end])


def _pictures(content: bytes, coverage: Coverage, place: Place) -> Iterator[bytes]:
    for match in coverage.first(_PICTURE.finditer(content), "office_members", place):
        end = content.find(b"}", match.end())
        yield _decode_hex(content[match.end() : end if end >= 0 else len(content)])


def _fields(content: bytes, coverage: Coverage, place: Place) -> Iterator[str]:
    """Yield the instructions of fields as plain text."""
    for match in coverage.first(_FIELD.finditer(content), "office_fields", place):
        end = content.find(_FIELD_RESULT, match.end())
        text = content[match.end() : end if end >= 0 else len(content)]
        text = coverage.cut(text, "office_field", place)
        plain = _HEX_CHARACTER.sub(lambda found: bytes([int(found[1], 16)]), text)
        plain = _CONTROL.sub(b"", plain).translate(None, b"{}\r\n")
        yield plain.decode("latin-1").replace("\\\\", "\\")


def _decode_hex(text: bytes) -> bytes:
    digits = _NOT_HEX.sub(b"", _CONTROL.sub(b"", text))
    return bytes.fromhex(digits[: len(digits) // 2 * 2].decode("ascii"))
