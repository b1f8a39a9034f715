"""Reads the Office documents of a message: macros, external relations, DDE, links and packed files.

A part of a document is recognised by its content and not by its path: Office finds parts by relations and content
types, so a macro project may have any name.

Security: reads hostile files inside a killable worker; members and bytes are bounded by the message's limits, patterns
are linear, and content that cannot be read is recorded as missed.
"""

import base64
import binascii
import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from html import unescape

from msgspec import Struct

from mailwarden.files.file_types import HEAD, kind_by_content, kind_by_name
from mailwarden.files.images import picture_kind
from mailwarden.files.office.compound import SIGNATURE, Compound, read_compound, read_raw_workbook
from mailwarden.files.rtf import DDE_FIELD, OfficeDocument, read_rtf_document
from mailwarden.files.unpacking import SeenFile
from mailwarden.message.coverage import Coverage
from mailwarden.message.literal_set import Marks
from mailwarden.model.place import WHOLE_MESSAGE, Place

_MACROS = "_VBA_PROJECT".encode("utf-16-le")
_FLAT = Marks(
    (
        b"schemas.microsoft.com/office/2006/xmlPackage",
        b"<office:document",
        b"mso-application",
        b"application/x-mso",
        b"editdata.mso",
    )
)
_ACCESS = (b"\0\1\0\0Standard Jet DB", b"\0\1\0\0Standard ACE DB")
_RELATION = re.compile(rb"<(?:[\w.-]{1,50}:)?Relationship\b((?:[^<>\"']|\"[^\"<]*\"|'[^'<]*')*)>", re.IGNORECASE)
_ATTRIBUTE = re.compile(rb"\b(Type|Target|TargetMode)\s{0,9}=\s{0,9}(?:\"([^\"]*)\"|'([^']*)')", re.IGNORECASE)
_FIELD_TEXT = re.compile(rb"<w:instrText\b[^<>]*>([^<]*)<|w:instr=\"([^\"]*)\"|w:instr='([^']*)'")
_TEXT = re.compile(rb"<w:t(?:\s[^<>]*)?>([^<]+)<")
_DDE_LINK = re.compile(rb"ddeService=[\"']([^\"']{1,1000})[\"']|<(?:office|table):dde-(?:source|link)\b", re.IGNORECASE)
_FORMULA_LINK = re.compile(rb"HYPERLINK\s{0,9}\(\s{0,9}(?:\"|&quot;)(https?:[^\"<&]{1,4000})", re.IGNORECASE)
_FIELD_LINK = re.compile(
    r"HYPERLINK\s{1,9}(?:\\[a-z]\s{0,9}){0,4}[\"“]?\s{0,9}(https?:[^\"”\s]{1,4000})", re.IGNORECASE
)
_INCLUDED = re.compile(r"INCLUDE(?:PICTURE|TEXT)\s{1,9}\"?((?:https?:|ftp:|file:|\\\\)[^\"\s]{1,2000})", re.IGNORECASE)
_REMOTE = re.compile(
    r"(?:https?:|ftp:|mhtml:|\\\\|file://(?![/\\])[\w.-]{1,100}[/\\]|file:/{0,5}\\{0,2}[\w.-]{1,100}@|file:////)",
    re.IGNORECASE,
)
# Relations to places outside that load nothing by themselves, or only what a page of the web would load too.
_SHOWN_ONLY = frozenset({"hyperlink", "image", "video", "audio", "media", "font", "thumbnail"})
_COMMANDS = ("cmd", "powershell", "mshta", "wscript", "cscript", "rundll32", "regsvr32", "msbuild", "certutil", "excel")
_OUTSIDE_CALL = re.compile(
    r"\b(?:onload|onaction|loadimage)\s{0,3}=\s{0,3}[\"']((?:https?:|\\\\|file:)[^\"']{1,2000})", re.IGNORECASE
)
_RUN = re.compile(r"(?:powershell|cmd(?:\.exe)?|mshta|wscript|cscript|rundll32|regsvr32)\b", re.IGNORECASE)
_MACRO_TYPE = re.compile(rb"ms-office\.vbaProject|wordprocessingml\.vbaData|\.macroEnabled", re.IGNORECASE)
_MACRO_SHEET_TYPE = re.compile(rb"ms-excel\.(?:intl)?macrosheet", re.IGNORECASE)
_BINARY = re.compile(rb"<(?:pkg:binaryData|w:binData|o:oleObject|office:binary-data)\b[^<>]*>([A-Za-z0-9+/=\s]+)<")
# Links written at their place instead of as relations: OpenDocument (xlink:href), VML shapes (href), XPS (NavigateUri),
# Word 2003 (w:dest), Excel 2003 (ss:HRef) and Visio (the cell Address).
_INLINE_LINK = re.compile(
    rb"(?:href|NavigateUri|w:dest|Address[\"']\s{1,9}V)\s{0,9}=\s{0,9}(?:\"([^\"<]{1,4000})|'([^'<]{1,4000}))",
    re.IGNORECASE,
)
_OPEN_LOADED = re.compile(
    rb"<(?:draw:object|draw:object-ole|draw:plugin|draw:applet|draw:floating-frame|text:section-source|meta:template"
    rb"|table:cell-range-source|office:script)\b[^<>]*xlink:href=[\"']([^\"']+)[\"']"
)
_OPEN_SCRIPT = re.compile(rb"vnd\.sun\.star\.script:|macro:///|<script:event-listener\b")


def read_document(
    content: bytes, kind: str, coverage: Coverage | None = None, place: Place = WHOLE_MESSAGE
) -> OfficeDocument | None:
    """Read one file, or return None if it is no Office document."""
    coverage = coverage or Coverage()
    if kind == "ole":
        return _from_compound(read_compound(content, coverage, place), traces=_MACROS in content)
    if kind == "rtf":
        return read_rtf_document(content, coverage, place)
    if content.startswith(_ACCESS):
        coverage.unsupported(place, "an Access database may run macros, and its format is not read")
        return OfficeDocument()
    if kind == "zip":
        return _Package(coverage, place).read(content)
    if kind in {"", "web page"}:
        if (workbook := read_raw_workbook(content, coverage, place)) is not None:
            return _from_compound(workbook, traces=False)
        if _is_flat(content, kind):
            return _Package(coverage, place).read_flat(content)
    return None


def _is_flat(content: bytes, kind: str) -> bool:
    """Return whether this is a document in one XML file, or an HTML page saved by Office."""
    if _FLAT.occur_in(content):
        return True
    return kind == "web page" and b"urn:schemas-microsoft-com:office" in content


def _from_compound(found: Compound, *, traces: bool) -> OfficeDocument:
    """Return the document; a broken file with traces of macros counts as having them, because Office repairs files."""
    return OfficeDocument(
        found.macros or traces,
        found.code,
        found.macro_sheets,
        found.encrypted,
        found.packages,
        remote=tuple(("oleobject", target) for target in found.remote if _REMOTE.match(target)),
        dde=found.dde,
        links=found.links,
    )


class _Package:
    """Gathers what the parts of one document do."""

    def __init__(self, coverage: Coverage, place: Place) -> None:
        self._coverage = coverage
        self._place = place
        self.macros = self.macro_sheets = self.encrypted = False
        self.code: list[str] = []
        self.packages: list[tuple[str, bytes]] = []
        self.remote: dict[tuple[str, str], None] = {}
        self.dde = ""
        self.links: dict[str, None] = {}
        self.letters = -1

    def read(self, content: bytes) -> OfficeDocument | None:
        """Read a document that is a zip; None if it is another zip."""
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                names = {entry.filename.lower() for entry in archive.infolist()}
                if not _is_document(names):
                    return None
                for name, data in self._members(archive):
                    self._read_member(name, data)
        except Exception:  # a broken one raises what it likes
            if b"[Content_Types].xml" not in content and b"META-INF/manifest.xml" not in content:
                return None
            self._coverage.damaged(self._place, "the document is damaged, and Office may repair it")
        return self._found()

    def read_flat(self, content: bytes) -> OfficeDocument:
        """Read a document that is one file of XML."""
        self.macros = b"editdata.mso" in content or b'macrosPresent="yes"' in content
        for match in self._coverage.first(_BINARY.finditer(content), "office_members", self._place):
            try:
                data = base64.b64decode(match[1])
            except (ValueError, binascii.Error):
                continue
            if data.startswith(SIGNATURE):
                self._read_compound(data)
            elif data.startswith(b"ActiveMime"):
                self.macros = True
        self._read_xml("", content)
        return self._found()

    def _found(self) -> OfficeDocument:
        return OfficeDocument(
            self.macros,
            "\n".join(self.code),
            self.macro_sheets,
            self.encrypted,
            tuple(self.packages),
            remote=tuple(self.remote),
            dde=self.dde,
            links=tuple(self.links),
            letters=self.letters,
        )

    def _members(self, archive: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
        """Yield the members that may matter; pictures, which fill most documents, are not unpacked."""
        limits = self._coverage.limits
        room = limits.office_bytes
        for entry in self._coverage.first(archive.infolist(), "office_members", self._place):
            if entry.is_dir():
                continue
            if entry.flag_bits & 1:
                self._coverage.encrypted(self._place, "a part of the document is encrypted")
                continue
            try:
                with archive.open(entry) as stream:
                    head = stream.read(64)
                    if picture_kind(head):
                        continue
                    data = head + stream.read(min(limits.office_member, room) + 1)
            except NotImplementedError:
                self._coverage.unsupported(self._place, "a part of the document is packed by a method that is not read")
                continue
            except Exception:  # one broken member must not hide the others
                self._coverage.damaged(self._place, "a part of the document is damaged, and Office may repair it")
                continue
            room -= len(data)
            if len(data) > limits.office_member:
                self._coverage.beyond("office_member", self._place)
            yield entry.filename.lower(), data
            if room <= 0:
                self._coverage.beyond("office_bytes", self._place)
                return

    def _read_member(self, name: str, data: bytes) -> None:
        self.macros = self.macros or name.endswith("vbaproject.bin") or _is_open_macro(name, data)
        self.macro_sheets = self.macro_sheets or name.startswith("xl/macrosheets/")
        if data.startswith(SIGNATURE):  # by content: a project of macros may have any name
            self._read_compound(data)
            return
        if "/embeddings/" in name and kind_by_name(name):
            self.packages.append((name.rpartition("/")[2], data))
        head = data[:4].lstrip(b"\xef\xbb\xbf \t\r\n")
        if data[:2] in (b"\xff\xfe", b"\xfe\xff") or data[:4:2] == b"<?" or data[1:4:2] == b"<?":
            data = _from_utf_16(data)
        elif not head.startswith(b"<") and not name.endswith((".xml", ".rels")):
            return
        self._read_xml(name, data)

    def _read_compound(self, data: bytes) -> None:
        inner = read_compound(data, self._coverage, self._place)
        self.macros = self.macros or inner.macros or _MACROS in data
        self.packages += inner.packages
        self.code.append(inner.code)
        self.dde = self.dde or inner.dde
        self.remote.update(dict.fromkeys(("oleobject", target) for target in inner.remote if _REMOTE.match(target)))
        self.links.update(dict.fromkeys(inner.links))

    def _read_xml(self, name: str, data: bytes) -> None:
        if b"Relationship" in data:
            self._read_relations(data)
        if name == "[content_types].xml":
            self.macros = self.macros or bool(_MACRO_TYPE.search(data))
            self.macro_sheets = self.macro_sheets or bool(_MACRO_SHEET_TYPE.search(data))
        if name.startswith("customui/") or b"<customUI" in data:
            calls = _OUTSIDE_CALL.findall(data.decode("utf-8", "replace"))
            self.remote.update(dict.fromkeys(("customui", place) for place in calls))
        self._read_fields(data)
        if name == "word/document.xml":
            self.letters = sum(map(len, _TEXT.findall(data)))
        for one, two in _INLINE_LINK.findall(data):
            target = unescape((one or two).decode("utf-8", "replace")).strip()
            if target[:4].lower() == "http":
                self._add_link(target)
        if b"xlink:href" in data:
            self._read_loaded(data)
        if b"encryption-data" in data and name == "meta-inf/manifest.xml":
            self._coverage.encrypted(self._place, "the document is encrypted")

    def _read_relations(self, data: bytes) -> None:
        for relation in self._coverage.first(_RELATION.finditer(data), "office_relations", self._place):
            facts = {key.lower(): unescape((one or two).decode("utf-8", "replace"))
                     for key, one, two in _ATTRIBUTE.findall(relation[1])}  # fmt: skip
            kind = facts.get(b"type", "").rpartition("/")[2].lower()
            target = facts.get(b"target", "").strip()
            if kind == "vbaproject":
                self.macros = True
            if kind.endswith("hyperlink"):
                if target[:4].lower() in {"http", "ftp:"} or target[:4].lower().startswith("www."):
                    self._add_link(target)
                elif _RUN.match(target):
                    self.dde = self.dde or target
            is_outside = facts.get(b"targetmode", "").lower() == "external" and bool(_REMOTE.match(target))
            # A picture of the web is counted by who keeps it; one on a share is asked for with the reader's login.
            on_share = kind == "image" and not target[:4].lower().startswith(("http", "ftp"))
            if is_outside and (kind not in _SHOWN_ONLY or on_share):
                self.remote[kind, target] = None

    def _read_fields(self, data: bytes) -> None:
        """Read the fields of a text and the formulas of a sheet: links, and programs that are asked by DDE."""
        if b"ddeService" in data or b":dde-" in data:
            for match in _DDE_LINK.finditer(data):
                service = (match[1] or b"a program").decode("utf-8", "replace")
                if not match[1] or service.lower().startswith(_COMMANDS):
                    self.dde = self.dde or service
        if b"w:instr" in data:
            texts = (b"".join(found) for found in _FIELD_TEXT.findall(data))
            fields = unescape(b"".join(texts).decode("utf-8", "replace"))  # one field may be split over many runs
            if DDE_FIELD.search(fields):
                self.dde = self.dde or fields
            for link in _FIELD_LINK.findall(fields):
                self._add_link(link)
            self.remote.update(dict.fromkeys(("oleobject", target) for target in _INCLUDED.findall(fields)))
        if b"HYPERLINK" in data:
            for found in _FORMULA_LINK.finditer(data):
                self._add_link(unescape(found[1].decode("utf-8", "replace")))

    def _read_loaded(self, data: bytes) -> None:
        """Read what an OpenDocument loads from elsewhere, and its scripts."""
        for place in _OPEN_LOADED.findall(data):
            target = unescape(place.decode("utf-8", "replace"))
            if _REMOTE.match(target):
                self.remote["oleobject", target] = None
        self.macros = self.macros or bool(_OPEN_SCRIPT.search(data))

    def _add_link(self, url: str) -> None:
        if len(self.links) < self._coverage.limits.urls:
            self.links[url] = None
        elif url not in self.links:
            self._coverage.beyond("urls", self._place)


def _is_document(names: set[str]) -> bool:
    return (
        "[content_types].xml" in names
        or "meta-inf/manifest.xml" in names
        or ("mimetype" in names and "content.xml" in names)
    )


def _is_open_macro(name: str, data: bytes) -> bool:
    """Return whether this is a macro module of an OpenDocument; LibreOffice writes empty libraries into all files."""
    if name.startswith("scripts/"):
        return True
    return name.startswith("basic/") and not name.endswith(("script-lb.xml", "script-lc.xml")) and bool(data.strip())


def _from_utf_16(data: bytes) -> bytes:
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-16-le" if data[:1] == b"<" else "utf-16-be"
    return data.decode(encoding, "replace").encode("utf-8")


class SeenDocument(Struct, frozen=True):
    """One document; `password` is what opened it, where it was encrypted."""

    file: SeenFile
    document: OfficeDocument
    kind: str
    password: str = ""


def read_office_files(files: Sequence[SeenFile], coverage: Coverage) -> tuple[SeenDocument, ...]:
    """Read every Office document, and record the encrypted ones that no password opened."""
    found: list[SeenDocument] = []
    opened: set[bytes] = set()
    encrypted: list[SeenFile] = []
    for file in files:
        kind = kind_by_content(file.content[:HEAD])
        document = read_document(file.content, kind, coverage, file.place)
        if document is None:
            continue
        found.append(SeenDocument(file, document, kind, file.password))
        if file.plain_of:
            opened.add(file.plain_of)
        if document.encrypted:
            encrypted.append(file)
    for file in encrypted:
        if file.content not in opened:
            coverage.encrypted(file.place, "the document is encrypted, and the message does not give the password")
    return tuple(found)
