"""Names of files that links fetch: programs, installers, archives."""

import re
from urllib.parse import unquote

import re2

from mailwarden.files.file_types import DANGEROUS, is_archive_name, kind_by_name
from mailwarden.message.file_names import ending_of

# Endings that are also TLDs, or common in links of administrators and programmers.
_COMMON = frozenset(
    {"com", "js", "mjs", "app", "deb", "rpm", "dmg", "jar", "apk", "theme", "workflow", "inf", "command", "ws",
     "desktop", "reg", "url"}
)  # fmt: skip
# Remote-control tools, which attackers misuse.
_REMOTE_CONTROL = re.compile(
    r"(?i)screenconnect|connectwise|ateraagent|anydesk|teamviewer|splashtop|logmein|gotoresolve|goto_?resolve|simplehelp"
    r"|pdq-?connect|action1|datto-?rmm|netsupport|rustdesk|ultraviewer|syncro|level-?agent|tacticalrmm|meshagent"
)

# Names of files anywhere behind the host: file shares write more behind the name, and servers take it as a parameter.
_FETCHED = re2.compile(
    r"(?i)(?:^|[/?&=#;\\\"' ])([^/?&=#;\\\"' ]{0,200}\.(?:exe|msi|msix|msixbundle|appx|appxbundle|appinstaller|scr|pif"
    r"|bat|cmd|ps1|vbs|vbe|jse|js|wsf|hta|lnk|iso|img|vhdx?|dmg|pkg|apk|xapk|jar|appimage|zip|rar|7z|cab|ace|arj|tgz|tar"
    r"|gz))(?:[/?&#;\\\"' ]|$)"
)
# Programs and packages that a reader installs; the links of programmers name them too.
_INSTALLERS = frozenset(
    {"dmg", "pkg", "apk", "xapk", "jar", "js", "appimage", "msix", "msixbundle", "appx", "appxbundle", "appinstaller"}
)


def fetched_name(url: str) -> str:
    """Return the name of the file that a link fetches: at the end of its path, or a file's name elsewhere, or ""."""
    rest = url.partition("://")[2]
    path = rest.partition("?")[0].partition("#")[0]
    name = unquote(path.rpartition("/")[2]) if "/" in path else ""
    if not (kind_by_name(name) or is_archive_name(name)) and "." in (tail := rest[len(rest.partition("/")[0]) :]):
        found = _FETCHED.search(unquote(tail) if "%" in tail else tail)
        return found[1] if found else name
    return name


def is_program(name: str) -> bool:
    return kind_by_name(name) in DANGEROUS and ending_of(name) not in _COMMON


def is_installer(name: str) -> bool:
    return ending_of(name) in _INSTALLERS


def is_fetched(name: str) -> bool:
    """Return whether a name is one of a program, an installer or an archive."""
    return is_program(name) or is_installer(name) or is_archive(name)


def is_remote_control(name: str) -> bool:
    return bool(_REMOTE_CONTROL.search(name))


def is_archive(name: str) -> bool:
    return is_archive_name(name) and ending_of(name) != "jar"
