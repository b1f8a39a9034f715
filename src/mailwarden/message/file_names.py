"""File names as the recipient's system opens them, with disguises removed.

Analyzers and `attachment-block` use this one function, so that both see the same ending.
Security: works on names that strangers chose; one pass over a bounded name, and it never raises.
"""

import re
import unicodedata
from functools import lru_cache
from urllib.parse import unquote

LONGEST = 1_000  # not inspection: of a longer name both ends are kept by its reader

_ORDINARY = re.compile(r"[\w ()\[\]+,&'-]{1,300}(?:\.[\w ()\[\]+,&'-]{0,60}[\w)\]+&-]){0,5}", re.ASCII)
_STEP = re.compile(r"[/\\]")
_STREAM = re.compile(r":[^:.]{0,255}(?::\$?[A-Za-z]{0,30})?$")  # NTFS: file:stream:type, which opens the file
_UNSEEN = frozenset({"Cf", "Cc", "Cs", "Co", "Mn"})
_FILLERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
_DOTS = {ord(character): "." for character in "\uff0e\u3002\uff61\u2024\ufe52"}
_QUOTES = "\"'`\u201c\u201d\u2018\u2019"


@lru_cache(maxsize=2_048)
def plain_name(name: str) -> str:
    """Return a name as Windows opens it: no folder, no stream, nothing invisible, no dots and spaces at its end."""
    if _ORDINARY.fullmatch(name):
        return name
    name = name[-LONGEST:]
    if "%" in name:
        name = unquote(name)
    name = name.split("\0", 1)[0] or name
    name = _STEP.split(name.rstrip("/\\"))[-1]
    if not name.isascii():
        name = unicodedata.normalize("NFKC", name.translate(_DOTS))
        name = "".join(character for character in name if not _is_unseen(character))
    elif not name.isprintable():
        name = "".join(filter(str.isprintable, name))
    if ":" in name:
        name = _STREAM.sub("", name) or name
    return name.strip(_QUOTES + " ").rstrip(". \t\u00a0")


def ending_of(name: str) -> str:
    """Return the last extension of a name in lower case, without its dot, or ""."""
    base, dot, ending = plain_name(name).rpartition(".")
    return ending.strip().lower() if dot and base else ""


def _is_unseen(character: str) -> bool:
    return (
        character in _FILLERS
        or (not character.isascii() and unicodedata.category(character) in _UNSEEN)
        or not character.isprintable()
    )
