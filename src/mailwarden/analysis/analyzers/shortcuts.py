"""Reports dangerous shortcuts: commands that they run, remote files, and servers that they contact.

Security: works on hostile files inside a killable worker; reads are bounded, nothing is followed, and
facts are cut.
"""

import re
from collections.abc import Iterator
from typing import ClassVar

from mailwarden.analysis.files.file_types import kind_by_name
from mailwarden.analysis.files.shortcuts import Shortcut, read_shortcut
from mailwarden.analysis.files.unpacking import SeenFile
from mailwarden.analysis.finding_limits import limit_each_kind
from mailwarden.analysis.view import View
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
        yield _finding("remote-program", file, shortcut)
    if _SERVER.search(shortcut.icon):
        yield _finding("greeting", file, shortcut)


def _finding(what: str, file: SeenFile, shortcut: Shortcut) -> Finding:
    facts = {"name": file.name or "without a name", "path": file.part.path, "target": shortcut.target}
    facts |= {"arguments": shortcut.arguments} if shortcut.arguments else {}
    facts |= {"icon": shortcut.icon} if what == "greeting" else {}
    facts |= {"host": host} if (host := host_of(shortcut.target)) else {}
    return Finding(f"shortcuts.{what}", file.part.place, {key: value[: SHOWN.fact] for key, value in facts.items()})
