"""What a link fetches, as far as the name at its end tells: programs, tools that let others in, archives.

Security: works on hostile addresses; every pattern is linear and bounded, and it never raises.
"""

import re
from urllib.parse import unquote

from mailwarden.analysis.file_types import DANGEROUS, ending_of, is_archive_name, kind_by_name

# Endings that are as well those of hosts, of pages, or of what administrators and programmers link to.
_COMMON = frozenset(
    {"com", "js", "mjs", "app", "deb", "rpm", "dmg", "jar", "apk", "theme", "workflow", "inf", "command", "ws",
     "desktop", "reg", "url"}
)  # fmt: skip
# Tools by which a help desk sees and steers another's machine, and thieves too.
_REMOTE_CONTROL = re.compile(
    r"(?i)screenconnect|connectwise|ateraagent|anydesk|teamviewer|splashtop|logmein|gotoresolve|goto_?resolve|simplehelp"
    r"|pdq-?connect|action1|datto-?rmm|netsupport|rustdesk|ultraviewer|syncro|level-?agent|tacticalrmm|meshagent"
)


def fetched_name(url: str) -> str:
    """Return the name of the file at the end of a link's path, or ""."""
    _, _, rest = url.partition("://")
    path = rest.partition("?")[0].partition("#")[0]
    return unquote(path.rpartition("/")[2]) if "/" in path else ""


def is_program(name: str) -> bool:
    return kind_by_name(name) in DANGEROUS and ending_of(name) not in _COMMON


def lets_others_in(name: str) -> bool:
    return bool(_REMOTE_CONTROL.search(name))


def is_archive(name: str) -> bool:
    return is_archive_name(name) and ending_of(name) != "jar"
