"""Office documents in today's formats: macros, relations to other places, DDE and packed files; RTF; OneNote.

Security: reads hostile files inside a killable worker; a document's members come from archives opened under limits,
patterns are linear, and every loop is bounded.
"""

import io
import re
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from html import unescape

from msgspec import Struct

from mailwarden.analysis.compound_files import MAX_CODE, Compound, package_names, read_compound
from mailwarden.analysis.file_types import kind_by_name

MAX_MEMBER = 4 * 1024 * 1024
MAX_READ = 32 * 1024 * 1024  # of all members of one document
_MAX_MEMBERS = 10_000
_MAX_OBJECTS = 20
_MAX_OBJECT = 256 * 1024
_MAX_STORED = 50
_MAX_LINKS = 200

_MACROS = "_VBA_PROJECT".encode("utf-16-le")
_RELATION = re.compile(r"<(?:\w{1,20}:)?Relationship\b[^<>]{1,4000}>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"\b(Type|Target|TargetMode)\s{0,5}=\s{0,5}[\"']([^\"']{0,2000})[\"']", re.IGNORECASE)
_FIELD_TEXT = re.compile(r"<w:instrText\b[^<>]{0,200}>([^<]{0,2000})<|w:instr=\"([^\"]{0,2000})\"")
_TEXT = re.compile(r"<w:t(?:\s[^<>]{0,100})?>([^<]{1,10000})<")
_DDE_FIELD = re.compile(r"\bDDE(?:AUTO)?\b", re.IGNORECASE)
_DDE_LINK = re.compile(r"ddeService=\"([^\"]{1,100})\"", re.IGNORECASE)
_REMOTE = re.compile(
    r"(?:https?:|ftp:|mhtml:|\\\\|file://(?![/\\])[\w.-]{1,100}[/\\]|file:/{0,5}\\{0,2}[\w.-]{1,100}@|file:////)",
    re.IGNORECASE,
)
_LOADED = (
    "attachedtemplate",
    "oleobject",
    "frame",
    "subdocument",
    "externallinkpath",
    "vmldrawing",
    "webvideo",
    "afchunk",
)
_COMMANDS = ("cmd", "powershell", "mshta", "wscript", "cscript", "rundll32", "regsvr32", "msbuild", "certutil", "excel")

_OUTSIDE_CALL = re.compile(
    r"\b(?:onload|onaction|loadimage)\s{0,3}=\s{0,3}[\"']((?:https?:|\\\\|file:)[^\"']{1,500})", re.IGNORECASE
)
_RUN = re.compile(r"(?:powershell|cmd(?:\.exe)?|mshta|wscript|cscript|rundll32|regsvr32)\b", re.IGNORECASE)
_RTF_TEMPLATE = re.compile(rb"\\\*\\template\s{1,9}((?:https?:|ftp:|file:|\\\\)[^{}\s]{1,500})", re.IGNORECASE)
_ACTIVE_OBJECT = re.compile(rb"\\obj(?:ocx|autlink|update|link)\b")
_OBJECT_DATA = re.compile(rb"\\objdata\b")
_NOT_HEX = re.compile(rb"[^0-9a-fA-F]")
_CONTROL = re.compile(rb"\\(?:bin\d{0,10}|[a-z]{1,32}-?\d{0,10})|\\'[0-9a-f]{2}|\\\*")
_EQUATION = (b"equation.", bytes.fromhex("02ce020000000000c000000000000046"), b"equation native")

ONENOTE = bytes.fromhex("e4525c7b8cd8a74daeb15378d02996d3")
_STORED_FILE = bytes.fromhex("e716e3bd65261145a4c48d4d0b7a9eac")
_STORED_NAME = re.compile(rb"(?:[\x20-\x7e]\x00){1,200}")


class OfficeDocument(Struct, frozen=True):
    """What a document can do when it is opened."""

    macros: bool = False
    code: str = ""
    macro_sheets: bool = False
    encrypted: bool = False
    packages: tuple[str, ...] = ()
    remote: tuple[tuple[str, str], ...] = ()  # what it loads from elsewhere: the kind of relation, and the place
    dde: str = ""  # the program that it talks to
    exploit: str = ""
    active: bool = False  # it holds an object that comes alive by itself
    links: tuple[str, ...] = ()  # what can be clicked
    letters: int = -1  # of a text; -1 where they are not counted


def read_document(content: bytes, kind: str) -> OfficeDocument | None:
    """Read one file, or return None where it is no Office document."""
    if kind == "ole":
        return _from_compound(read_compound(content), traces=_MACROS in content)
    if kind == "rtf":
        return read_rtf(content)
    if kind == "zip" and b"[Content_Types].xml" in content:
        return _read_open_xml(content)
    if kind in {"", "web page"} and _is_flat_with_macros(content[:MAX_MEMBER]):
        return OfficeDocument(macros=True)
    return None


def _is_flat_with_macros(content: bytes) -> bool:
    """Tell a document of one file, as XML or as a saved page, that carries macros."""
    if b"editdata.mso" not in content and b'macrosPresent="yes"' not in content:
        return False
    return b"mso-application" in content or b"application/x-mso" in content or b"urn:schemas-microsoft" in content


def _from_compound(found: Compound, *, traces: bool) -> OfficeDocument:
    """Take a broken file that bears the traces of macros for one that has them: Office repairs what it opens."""
    return OfficeDocument(found.macros or traces, found.code, found.macro_sheets, found.encrypted, found.packages)


def _read_open_xml(content: bytes) -> OfficeDocument:
    macros = macro_sheets = False
    code: list[str] = []
    packages: list[str] = []
    remote: list[tuple[str, str]] = []
    dde = ""
    links: dict[str, None] = {}
    letters = -1
    for name, data in _members(content):
        macros = macros or name.endswith("vbaproject.bin")
        macro_sheets = macro_sheets or name.startswith("xl/macrosheets/")
        if data.startswith(b"\xd0\xcf\x11\xe0"):  # by content: a project of macros may have any name
            inner = read_compound(data)
            macros = macros or inner.macros
            packages += inner.packages
            code.append(inner.code)
        elif name.endswith(".rels"):
            text = data.decode("utf-8", "replace")
            remote += _remote_relations(text)
            links.update(dict.fromkeys(_hyperlinks(text)))
            dde = dde or _run_by_click(text)
        elif name.startswith("customui/"):
            remote += [("customui", place) for place in _OUTSIDE_CALL.findall(data.decode("utf-8", "replace"))[:5]]
        elif name.endswith(".xml") and name.startswith(("word/", "xl/externallinks/")):
            text = data.decode("utf-8", "replace")
            dde = dde or _dde(text)
            letters = sum(map(len, _TEXT.findall(text))) if name == "word/document.xml" else letters
        elif "/embeddings/" in name and kind_by_name(name):
            packages.append(name.rpartition("/")[2])
    joined = "\n".join(code)[:MAX_CODE]
    return OfficeDocument(
        macros,
        joined,
        macro_sheets,
        packages=tuple(packages[:20]),
        remote=tuple(remote[:20]),
        dde=dde,
        links=tuple(links)[:_MAX_LINKS],
        letters=letters,
    )


def _members(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the members that may matter; pictures, which fill most documents, are not unpacked."""
    room = MAX_READ
    if content.count(b"PK\x01\x02") > _MAX_MEMBERS:  # the directory would be built in memory first
        return
    with suppress(Exception), zipfile.ZipFile(io.BytesIO(content)) as archive:  # a broken one raises what it likes
        for entry in archive.infolist():
            name = entry.filename.lower()
            if "/media/" in name or entry.is_dir():
                continue
            with suppress(Exception), archive.open(entry) as stream:  # one broken member must not hide the others
                data = stream.read(min(MAX_MEMBER, room))
                room -= len(data)
                yield name, data
            if room <= 0:
                return


def _remote_relations(text: str) -> Iterator[tuple[str, str]]:
    for relation in _RELATION.findall(text)[:1_000]:
        facts = {key.lower(): value for key, value in _ATTRIBUTE.findall(relation)}
        kind = facts.get("type", "").rpartition("/")[2].lower()
        target = facts.get("target", "")
        if facts.get("targetmode", "").lower() != "external" or not _REMOTE.match(target):
            continue
        # A picture of the web is counted by who keeps it; one on a share is asked for with the reader's login.
        if kind in _LOADED or (kind == "image" and not target[:4].lower().startswith(("http", "ftp"))):
            yield kind, target


def _hyperlinks(text: str) -> Iterator[str]:
    for relation in _RELATION.findall(text)[:1_000]:
        facts = {key.lower(): value for key, value in _ATTRIBUTE.findall(relation)}
        if facts.get("type", "").lower().endswith("/hyperlink") and facts.get("target", "")[:4].lower() == "http":
            yield unescape(facts["target"])


def _run_by_click(text: str) -> str:
    """Return the command that a link of the document runs, or ""."""
    for relation in _RELATION.findall(text)[:1_000]:
        facts = {key.lower(): value for key, value in _ATTRIBUTE.findall(relation)}
        if facts.get("type", "").lower().endswith("hyperlink") and _RUN.match(facts.get("target", "")):
            return str(facts["target"])
    return ""


def _dde(text: str) -> str:
    """Return the program that fields or links ask by DDE, or ""."""
    for service in _DDE_LINK.findall(text)[:100]:
        if service.lower().startswith(_COMMANDS):
            return str(service)
    if "DDE" not in text and "dde" not in text and "Dde" not in text:
        return ""
    fields = "".join(first or second for first, second in _FIELD_TEXT.findall(text)[:2_000])  # split over many runs
    return fields[:200] if _DDE_FIELD.search(fields) else ""


def read_rtf(content: bytes) -> OfficeDocument:
    """Look at the objects of a rich text; their hexadecimal text is torn by control words to hide from scanners."""
    exploit = ""
    packages: list[str] = []
    has_objects = False
    for match in list(_OBJECT_DATA.finditer(content))[:_MAX_OBJECTS]:
        has_objects = True
        data = _decode_hex(content[match.end() : match.end() + _MAX_OBJECT])
        lower = data[:_MAX_OBJECT].lower()
        if not exploit and any(mark in lower for mark in _EQUATION):
            exploit = "the equation editor"
        if b"package\0" in lower:
            position = lower.find(b"\x02\x00", lower.find(b"package\0"))
            packages += package_names(data[max(position - 4, 0) :]) if position >= 0 else []
    if has_objects and not content.startswith(b"{\\rtf"):
        exploit = exploit or "a torn beginning"
    nameless = not packages and b"objclass package" in content[:_MAX_OBJECT].lower()
    active = has_objects and (nameless or bool(_ACTIVE_OBJECT.search(content)))
    template = _RTF_TEMPLATE.search(content)
    remote = (("attachedtemplate", template[1].decode("latin-1")),) if template else ()
    return OfficeDocument(exploit=exploit, packages=tuple(packages[:20]), remote=remote, active=active)


def _decode_hex(text: bytes) -> bytes:
    digits = _NOT_HEX.sub(b"", _CONTROL.sub(b"", text))
    return bytes.fromhex(digits[: len(digits) // 2 * 2].decode("ascii"))


def onenote_files(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield what a OneNote section stores: the names of dangerous types that stand in it, and the files' beginnings."""
    for match in list(_STORED_NAME.finditer(content))[:20_000]:
        name = match[0].decode("utf-16-le")
        if kind_by_name(name) and " " not in name.strip():
            yield name, b""
    position = content.find(_STORED_FILE)
    for _ in range(_MAX_STORED):
        if position < 0:
            return
        start = position + 36
        length = int.from_bytes(content[position + 16 : position + 24], "little")
        yield "", content[start : start + min(length, 4_096)]
        position = content.find(_STORED_FILE, position + 16)
