"""OneNote sections: the files that they store, and their names.

Security: reads hostile files inside a killable worker; files and names are bounded by the message's limits.
"""

import re
from collections.abc import Iterator

from mailwarden.files.file_types import kind_by_name
from mailwarden.message.coverage import Coverage
from mailwarden.model.place import Place

ONENOTE = bytes.fromhex("e4525c7b8cd8a74daeb15378d02996d3")
_STORED_FILE = bytes.fromhex("e716e3bd65261145a4c48d4d0b7a9eac")
_STORED_NAME = re.compile(rb"(?:[\x20-\x7e]\x00){1,255}")


def onenote_names(content: bytes, coverage: Coverage, place: Place) -> Iterator[str]:
    """Yield the names of dangerous types that stand in a section."""
    for match in coverage.first(_STORED_NAME.finditer(content), "office_fields", place):
        name = match[0].decode("utf-16-le")
        if kind_by_name(name) and " " not in name.strip():
            yield name


def onenote_files(content: bytes) -> Iterator[bytes]:
    """Yield the files that a section stores (MS-ONESTORE 2.6.13)."""
    position = content.find(_STORED_FILE)
    while position >= 0:
        start = position + 36
        length = int.from_bytes(content[position + 16 : position + 24], "little")
        yield content[start : start + length]
        position = content.find(_STORED_FILE, position + 16)
