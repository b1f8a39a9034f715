"""Attachments: an extension, the last two of them, or a media type.

Security: senders choose misleading file names; invisible characters are dropped first.
"""

import re
from collections.abc import Iterable
from unicodedata import normalize

from mailwarden.errors import InvalidEntry
from mailwarden.lists.kinds.kind import Kind
from mailwarden.message.file_names import plain_name

_EXTENSIONS = re.compile(r"(?:\.[^\s./\\<>:;\"|?*]{1,32}){1,2}")
_NO_EXTENSION = re.compile(r"[\\:%\"'`\u201c\u201d\u2018\u2019]")  # parts of names that no ending holds
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}", re.ASCII)


def read_attachment(text: str) -> str:
    if "/" in text:
        media_type = _fold_media_type(text)
        if not _MEDIA_TYPE.fullmatch(media_type):
            raise InvalidEntry("A media type is written `type/subtype`, such as `application/x-msdownload`.")
        return media_type
    extension = _fold_name("name." + text.removeprefix("*").removeprefix(".")).removeprefix("name")
    if _NO_EXTENSION.search(text) or not _EXTENSIONS.fullmatch(extension):
        raise InvalidEntry("An extension is written `.exe`, or with the one before it `.pdf.exe`.")
    return extension


def candidates_for_attachment(name: str, media_type: str = "", inside: Iterable[str] = ()) -> list[str]:
    """Return the keys of the kind `attachment`: of the name and of the names inside an archive, then the media type."""
    twos: dict[str, None] = {}
    ones: dict[str, None] = {}
    for file_name in (name, *inside):
        _, *extensions = _fold_name(file_name).rsplit(".", 2)
        if len(extensions) == 2:
            twos[f".{extensions[0]}.{extensions[1]}"] = None
        if extensions:
            ones["." + extensions[-1]] = None
    folded = _fold_media_type(media_type)
    return [*twos, *ones, *([folded] if folded else [])]


def attachment_specificity(entry: str) -> int:
    """Order two extensions before one, and an extension, which the receiver's system obeys, before a media type."""
    return entry.count(".") + 1 if entry.startswith(".") else 1


def _fold_media_type(text: str) -> str:
    return text.partition(";")[0].strip().lower()


def _fold_name(name: str) -> str:
    """Return a name as the receiver's system opens it, in lower case; the analyzers read names the same way."""
    name = plain_name(name)
    return name.lower() if name.isascii() else normalize("NFC", name.lower())


ATTACHMENT = Kind(
    name="attachment",
    form="An extension such as `.exe`, also the last two such as `.pdf.exe`, or a media type.",
    examples=(
        (".exe", ".exe"),
        ("*.EXE", ".exe"),
        ("iso", ".iso"),
        (".pdf.exe", ".pdf.exe"),
        ("Application/X-MSDownload; name=a.exe", "application/x-msdownload"),
    ),
    read=read_attachment,
    specificity=attachment_specificity,
)
