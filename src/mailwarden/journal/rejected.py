"""Rejected rows of a journal, to be sent again: claimed from guard, read, and put back if they fail once more.

guard appends to `rejected.jsonl` at any time. So a resend renames the file first, under the lock with which guard
appends. The renamed file is deleted last: a resend that was interrupted starts again, and the history store ignores the
rows that it has.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mailwarden.errors import CommandError
from mailwarden.journal.format import MAX_PAYLOAD
from mailwarden.journal.put_aside import REJECTED, PutAside, append_lines, locked

CLAIMED = "rejected-resending.jsonl"
RESEND_LOCK = "resend.lock"
MAX_LINE = MAX_PAYLOAD + 65_536
_decoder = msgspec.json.Decoder(PutAside)


class Line(Struct, frozen=True):
    """A line of the file; `aside` is None if it is unreadable."""

    text: bytes
    aside: PutAside | None

    def rejected_for(self, reason: str) -> "Line":
        """Return the line with a new reason."""
        if self.aside is None:
            return self
        aside = replace(self.aside, reason=reason[:1_000])
        return Line(msgspec.json.encode(aside) + b"\n", aside)


@contextmanager
def claimed_rows(folder: Path) -> Iterator["ClaimedRows | None"]:
    """Claim the rejected rows of a journal, or yield None if there are none; no other resend runs meanwhile."""
    _require_owner(folder)
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder, RESEND_LOCK, 0.0))
        except TimeoutError:
            raise CommandError(f"Another `mailwarden history resend` uses {folder}. Wait until it ends.") from None
        file = _claim(folder)
        yield None if file is None else ClaimedRows(folder, stack.enter_context(file))


def _claim(folder: Path) -> IO[bytes] | None:
    """Open the rows of an interrupted resend, or else those that guard put aside."""
    path = folder / CLAIMED
    if not path.exists():
        try:
            with locked(folder):
                (folder / REJECTED).rename(path)
        except FileNotFoundError:
            return None
        except TimeoutError as error:
            raise CommandError(f"{folder / REJECTED} cannot be claimed: {error.strerror}. Try again.") from None
    return path.open("rb")


class ClaimedRows:
    """The rows of one resend."""

    def __init__(self, folder: Path, file: IO[bytes]) -> None:
        self._folder = folder
        self._file = file

    def read(self, count: int) -> Sequence[Line]:
        """Return the next lines, at most so many; none at the end of the file."""
        lines: list[Line] = []
        while len(lines) < count and (text := self._file.readline(MAX_LINE)):
            if text.strip():
                lines.append(Line(text, _parse(text)))
        return lines

    def finish(self, left: Sequence[Line]) -> None:
        """Put the rows back that history does not have, and delete the claimed file."""
        if left:
            text = b"".join(line.text if line.text.endswith(b"\n") else line.text + b"\n" for line in left)
            with locked(self._folder):
                append_lines(self._folder / REJECTED, text)
        (self._folder / CLAIMED).unlink()


def _parse(text: bytes) -> PutAside | None:
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _require_owner(folder: Path) -> None:
    """Raise unless we are the folder's owner: guard could not append to a file of another user."""
    try:
        owner = folder.stat().st_uid
    except OSError as error:
        raise CommandError(f"The journal's folder {folder} cannot be read: {error.strerror}.") from None
    if owner != os.geteuid():
        raise CommandError(
            f"{folder} belongs to another user (uid {owner}), and guard must be able to write to its files. "
            "Run the command as that user: runuser -u mailwarden -- mailwarden history resend"
        )
