"""Reads RTF documents: objects, templates, fields with links and commands, and pictures.

Security: reads hostile files inside a killable worker; objects and fields are bounded by the message's limits, patterns
are linear, and nothing raises.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

from mailwarden.analysis.files.office.compound import SIGNATURE, packed_file, read_compound
from mailwarden.message.coverage import Coverage
from mailwarden.message.urls import find_urls
from mailwarden.model.place import WHOLE_MESSAGE, Place

DDE_FIELD = re.compile(r"\bDDE(?:AUTO)?\b", re.IGNORECASE)


class OfficeDocument(Struct, frozen=True):
    """What a document can do when it is opened."""

    macros: bool = False
    code: str = ""
    macro_sheets: bool = False
    encrypted: bool = False
    packages: tuple[tuple[str, bytes], ...] = ()  # files that are packed into it, with their contents where known
    media: tuple[tuple[str, bytes], ...] = ()  # pictures that no archive reader unpacks
    remote: tuple[tuple[str, str], ...] = ()  # what it loads from elsewhere: the kind of relation, and the place
    dde: str = ""  # the program that it talks to
    exploit: str = ""
    active: bool = False  # it holds an object that comes alive by itself
    links: tuple[str, ...] = ()  # what can be clicked
    letters: int = -1  # of a text; -1 where they are not counted


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


def read_rtf(content: bytes, coverage: Coverage | None = None, place: Place = WHOLE_MESSAGE) -> OfficeDocument:
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
