"""What the readers of Office documents report, and the patterns that they share."""

import re

from msgspec import Struct

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
