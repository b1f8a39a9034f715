"""Reads shortcuts of Windows and other systems, and reports their commands, remote files and servers.

Security: works on hostile files inside a killable worker; every length is checked against the file, broken fields are
left out instead of raising, nothing is followed, and facts are cut.
"""

import re
from collections.abc import Iterator
from typing import ClassVar

from msgspec import Struct

from mailwarden.analysis.analyzer import limit_each_kind
from mailwarden.analysis.view import View
from mailwarden.files.file_types import kind_by_name
from mailwarden.files.unpacking import SeenFile
from mailwarden.message.file_names import ending_of
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import host_of
from mailwarden.model.evidence import Finding, Omitted

_INTERPRETERS = re.compile(
    r"(?i)\b(?:cmd|powershell|pwsh|mshta|wscript|cscript|rundll32|regsvr32|msiexec|certutil|bitsadmin|curl|forfiles"
    r"|conhost|schtasks|installutil|msbuild|wmic|hh|explorer|bash|sh|python\d?|ftp|ssh)(?:\.exe)?\b"
)
_SERVER = re.compile(
    r"(?i)(?:\\\\|file:/{2,40})(?!(?:localhost|127\.0\.0\.1)\b)[\w.-]{1,200}(?:@\w{1,10}){0,2}[\\/]|^(?:smb|ftp|dav)s?:"
)
_WEB = re.compile(r"(?i)https?://")
_LINK = b"L\x00\x00\x00\x01\x14\x02\x00"
_HAS_ITEMS, _HAS_INFO, _HAS_ARGUMENTS, _IS_WIDE = 0x01, 0x02, 0x20, 0x80
_TEXTS = ((0x04, "name"), (0x08, "path"), (0x10, "folder"), (_HAS_ARGUMENTS, "arguments"), (0x40, "icon"))
_ENVIRONMENT = b"\x14\x03\x00\x00\x01\x00\x00\xa0"  # a block with the target as text, variables unexpanded
_ADDRESS = re.compile(r"(?im)^[ \t]{0,20}(URL|IconFile|Exec|WorkingDirectory)[ \t]{0,20}=[ \t]{0,20}([^\r\n]{1,2000})")
_ELEMENT = re.compile(r"(?is)<(?:\w{1,20}:)?(url|DeepLink|jnlp|resources)\b([^<>]{0,2000})>([^<]{0,2000})")
_HREF = re.compile(r"(?i)\b(?:codebase|href)\s{0,5}=\s{0,5}[\"']([^\"']{1,2000})")
_PROPERTY = re.compile(r"(?is)<key>\s{0,20}URL\s{0,20}</key>\s{0,100}<string>([^<]{1,2000})")  # of Apple's shortcuts
_QUERY = re.compile(r"(?im)^WEB\s{0,5}\r?\n[^\n]{0,20}\n(https?://[^\r\n]{1,2000})")
TEXT_ENDINGS = frozenset(
    {"url", "website", "desktop", "library-ms", "search-ms", "searchconnector-ms", "settingcontent-ms", "jnlp", "iqy",
     "scf", "theme", "webloc", "inetloc", "fileloc"}
)  # fmt: skip


class Shortcut(Struct, frozen=True):
    """The program or address that a shortcut opens."""

    target: str = ""
    arguments: str = ""
    icon: str = ""


class ShortcutsAnalyzer:
    name: ClassVar[str] = "shortcuts"

    def examine(self, view: View) -> Iterator[Finding | Omitted]:
        return limit_each_kind(_look(view))


def _look(view: View) -> Iterator[Finding]:
    for file in view.opened_files:
        if (shortcut := read_shortcut(file.name, file.content)) is not None:
            yield from _look_at(file, shortcut)


def _look_at(file: SeenFile, shortcut: Shortcut) -> Iterator[Finding]:
    target, words = shortcut.target, f"{shortcut.target} {shortcut.arguments}"
    is_address = bool(_WEB.match(target))
    if not is_address and _INTERPRETERS.search(words):
        yield _finding("command", file, shortcut)
    if _SERVER.search(words) or (not is_address and _WEB.search(words)):
        yield _finding("remote-file", file, shortcut)
    elif is_address and kind_by_name(target.partition("?")[0].partition("#")[0].rpartition("/")[2]):
        yield _finding("remote-executable", file, shortcut)
    if _SERVER.search(shortcut.icon):
        yield _finding("remote-icon", file, shortcut)


def _finding(what: str, file: SeenFile, shortcut: Shortcut) -> Finding:
    facts = {"name": file.name or "without a name", "path": file.part.path, "target": shortcut.target}
    facts |= {"arguments": shortcut.arguments} if shortcut.arguments else {}
    facts |= {"icon": shortcut.icon} if what == "remote-icon" else {}
    facts |= {"host": host} if (host := host_of(shortcut.target)) else {}
    return Finding(f"shortcuts.{what}", file.part.place, {key: value[: SHOWN.fact] for key, value in facts.items()})


def read_shortcut(name: str, content: bytes) -> Shortcut | None:
    """Read a shortcut by its content, or by the ending of its name; None if it is none."""
    if content.startswith(_LINK):
        return _read_link(content)
    if ending_of(name) in TEXT_ENDINGS:
        return _read_text(content)
    return None


def _read_link(content: bytes) -> Shortcut:
    flags = int.from_bytes(content[20:24], "little")
    position = 76
    target = ""
    if flags & _HAS_ITEMS:
        size = int.from_bytes(content[position : position + 2], "little")
        target = _last_text(content[position + 2 : position + 2 + size])
        position += 2 + size
    if flags & _HAS_INFO:
        size = int.from_bytes(content[position : position + 4], "little")
        target = _local_path(content[position : position + size]) or target
        position += max(size, 4)
    texts: dict[str, str] = {}
    for flag, what in _TEXTS:
        if flags & flag:
            texts[what], position = _read_string(content, position, wide=bool(flags & _IS_WIDE))
    start = content.find(_ENVIRONMENT, position)
    if start >= 0:
        target = _ended(content[start + 8 : start + 268]) or target
    target = target or texts.get("path", "")
    return Shortcut(target, texts.get("arguments", ""), texts.get("icon", ""))


def _read_string(content: bytes, position: int, *, wide: bool) -> tuple[str, int]:
    size = int.from_bytes(content[position : position + 2], "little") * (2 if wide else 1)
    text = content[position + 2 : position + 2 + size].decode("utf-16-le" if wide else "latin-1", "replace")
    return " ".join(text.split()), position + 2 + size


def _local_path(info: bytes) -> str:
    offset = int.from_bytes(info[16:20], "little")
    return _ended(info[offset : offset + 1_000]) if 28 <= offset < len(info) else ""


def _last_text(items: bytes) -> str:
    """Return the last name in the chain of folders, which is the program itself."""
    found = re.findall(rb"(?:[\x20-\x7e]\x00){3,260}|[\x20-\x7e]{3,260}", items)[-1:]
    return found[0].replace(b"\0", b"").decode("ascii") if found else ""


def _ended(text: bytes) -> str:
    return text.partition(b"\0")[0].decode("latin-1")


def _read_text(content: bytes) -> Shortcut:
    wide = content[:2] in (b"\xff\xfe", b"\xfe\xff") or content[1:2] == b"\0"
    text = content.decode("utf-16" if wide else "utf-8", "replace")
    fields: dict[str, str] = {}
    for key, value in _ADDRESS.findall(text):
        fields.setdefault(key.lower(), value.strip())
    if fields:
        target, folder = fields.get("url") or fields.get("exec", ""), fields.get("workingdirectory", "")
        return Shortcut(target, folder, fields.get("iconfile", ""))
    if address := _PROPERTY.search(text):
        return Shortcut(address[1].strip())
    if query := _QUERY.search(text):
        return Shortcut(query[1])
    for _, attributes, inside in _ELEMENT.findall(text):
        href = _HREF.search(attributes)
        if target := (href[1] if href else inside.strip()):
            return Shortcut(target)
    return Shortcut(text if text[:20].lower().startswith(("search-ms:", "search:")) else "")
