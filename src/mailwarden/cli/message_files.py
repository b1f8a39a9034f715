"""The messages in files that a person names: single ones, folders of them, and mailboxes in the form mbox.

Security: reads hostile bytes, and does nothing with them but hand them on.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from mailwarden.errors import CommandError
from mailwarden.learning.contents import MessageCollector, ReportedMessage

BLOCK = 262_144
ENDINGS = (".eml", ".mbox")  # of files that count in a folder
_MAILBOX = b"From "  # how a mailbox begins, and no message
_EMPTY_END = re.compile(rb"(?<=\n)\r?\n\Z")


@dataclass(frozen=True, slots=True)
class MessageFile:
    """One message: how people find it, and how it is read."""

    name: str
    read: Callable[[], ReportedMessage]


def find_messages(places: Sequence[Path]) -> Sequence[MessageFile]:
    """Return every message in these files and folders, in the order of their names; nothing is held of them."""
    found: list[MessageFile] = []
    for place in places:
        files = sorted(_files_in(place)) if place.is_dir() else [place]
        if not files:
            raise CommandError(f"{place} holds no file that ends in {' or '.join(ENDINGS)}.")
        for file in files:
            found.extend(_messages_of(file))
    return found


def _files_in(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if file.suffix.lower() in ENDINGS and file.is_file())


def _messages_of(file: Path) -> Iterator[MessageFile]:
    try:
        with file.open("rb") as stream:
            is_mailbox = stream.read(len(_MAILBOX)) == _MAILBOX
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}.") from None
    if not is_mailbox:
        yield MessageFile(str(file), partial(_read, file))
        return
    for number, (start, end) in enumerate(pairwise(_separations(file)), 1):
        yield MessageFile(f"{file}:{number}", partial(_read_letter, file, start, end))


def _separations(file: Path) -> Sequence[int]:
    """Return where the lines stand that separate messages (From, after an empty line), and where the file ends."""
    found: list[int] = []
    position, after_empty, at_start = 0, True, True
    with file.open("rb") as stream:
        while piece := stream.readline(BLOCK):
            if after_empty and piece.startswith(_MAILBOX):
                found.append(position)
            after_empty = at_start and piece in (b"\n", b"\r\n")
            at_start = piece.endswith(b"\n")
            position += len(piece)
    return [*found, position]


def _read_letter(file: Path, start: int, end: int) -> ReportedMessage:
    """Read one message of a mailbox, without the line that separates it and the empty one before the next."""
    with file.open("rb") as stream:
        stream.seek(start)
        stream.readline()
        letter = stream.read(end - stream.tell())
    return ReportedMessage.of(_EMPTY_END.sub(b"", letter))


def _read(file: Path) -> ReportedMessage:
    intake = MessageCollector()
    try:
        with file.open("rb") as stream:
            while block := stream.read(BLOCK):
                intake.add(block)
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}.") from None
    return intake.finish()
