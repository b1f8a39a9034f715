"""The contract of container readers: files, the entries of a container, and the budget of the whole message.

A reader is a function of a file and the message's `Opening`. It yields an `Entry` for each file inside, unpacks through
`Opening.read`, and records content that it cannot inspect.

Security: counts hostile bytes while they come out; nothing is written to disk.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from msgspec import Struct

from mailwarden.files.office.compound import DEFAULT_PASSWORD
from mailwarden.message.coverage import Coverage
from mailwarden.message.limits import Limits
from mailwarden.message.message import Part
from mailwarden.model.place import WHOLE_MESSAGE, Place


class SeenFile(Struct, frozen=True):
    """One file of the message: an attachment, or a file inside one at any depth."""

    part: Part  # the MIME part that it came in
    name: str
    content: bytes
    inside: bool = False
    place: Place = WHOLE_MESSAGE  # such as `part 2 (a.zip) > b.rar > c.htm`
    media_type: str = ""  # as declared by the message that holds it, "" where nothing declares it
    charsets: tuple[str, ...] = ()
    is_body: bool = False  # the shown text of a message inside, such as the HTML body of an attached .eml
    is_read: bool = True  # False: only its name is known, because the content is encrypted or unreadable
    in_document: bool = False  # a part of an Office document, whose name means nothing
    joins_lines: bool = False
    base: str = ""  # the address that relative ones belong to
    was_hidden: bool = False  # an engine that opens archives by itself may not find it in the raw message
    password: str = ""  # of the encrypted document whose plain form this is
    plain_of: bytes = b""  # the content of that document


class Entry(NamedTuple):
    """One file that a container holds."""

    name: str
    content: bytes = b""
    media_type: str = ""
    charsets: tuple[str, ...] = ()
    is_body: bool = False
    is_read: bool = True
    joins_lines: bool = False
    base: str = ""
    unlocked: bool = False  # it was encrypted, and the message gives the password
    password: str = ""  # of an encrypted document, of which this is the plain form


class Exhausted(Exception):
    """A limit of the whole message is reached: nothing more of it is opened."""


class Traits:
    """Properties of one attachment, found while it was opened."""

    def __init__(self) -> None:
        self.kind = ""  # of the container that the attachment is
        self.encrypted = False
        self.unreadable = False
        self.joined = False


class Opening:
    """Opens the files of one message under one budget."""

    def __init__(self, coverage: Coverage, passwords: Callable[[], Iterable[str]] = tuple) -> None:
        self.coverage = coverage
        self.traits = Traits()
        self.unread = 0  # how often something could not be read
        self._find_passwords = passwords
        self._passwords: tuple[str, ...] | None = None
        self._has_more_passwords = False
        self._office_trials = 0
        self._files = 0
        self._bytes = 0
        self._until = time.process_time() + self.limits.unpack_seconds

    @property
    def limits(self) -> Limits:
        return self.coverage.limits

    @property
    def passwords(self) -> tuple[str, ...]:
        """The passwords in the message, searched for at the first encrypted file."""
        if self._passwords is None:
            found = tuple(islice(self._find_passwords(), self.limits.passwords + 1))
            self._passwords = found[: self.limits.passwords]
            self._has_more_passwords = len(found) > self.limits.passwords
        return self._passwords

    def office_passwords(self, place: Place) -> Iterator[str]:
        """Yield the passwords to try on an encrypted Office document; trials of all documents count together."""
        for password in (DEFAULT_PASSWORD, *self.passwords):
            self._office_trials += 1
            if self._office_trials > self.limits.office_trials:
                self.coverage.beyond("office_trials", place)
                return
            yield password

    def start(self) -> Traits:
        """Begin with the next attachment."""
        self.traits = Traits()
        return self.traits

    def admit(self, place: Place) -> None:
        """Count one more file."""
        self._files += 1
        if self._files > self.limits.files:
            self.exhaust("files", place)
        self.check_time(place)

    def check_time(self, place: Place) -> None:
        if time.process_time() > self._until:
            self.exhaust("unpack_seconds", place)

    def exhaust(self, limit: str, place: Place) -> None:
        self.coverage.beyond(limit, place)
        raise Exhausted

    def read(self, chunks: Iterable[bytes], packed: int, place: Place) -> bytes | None:
        """Join the chunks that a container yields; None if one file, or its share of the whole, is beyond a limit."""
        kept: list[bytes] = []
        size = 0
        for chunk in chunks:
            size += len(chunk)
            self._count(len(chunk), place)
            if size > self.limits.file_bytes:
                self.coverage.beyond("file_bytes", place)
                return None
            if size > self.limits.ratio_from and size > self.limits.ratio * max(packed, 1):
                self.coverage.beyond("ratio", place, f"it unpacks to more than {self.limits.ratio} times its size")
                return None
            kept.append(chunk)
        return kept[0] if len(kept) == 1 else b"".join(kept)

    def _count(self, size: int, place: Place) -> None:
        self._bytes += size
        if self._bytes > self.limits.unpacked_bytes:
            self.exhaust("unpacked_bytes", place)
        self.check_time(place)

    @contextmanager
    def trial(self) -> Iterator["Opening"]:
        """Open a file tentatively, such as by a wrong password: its cost counts, its failures do not."""
        attempt = Opening(Coverage(self.limits))
        attempt._bytes, attempt._until = self._bytes, self._until
        try:
            yield attempt
        finally:
            self._bytes = attempt._bytes
            for missed in attempt.coverage.missed:
                if missed.limit:
                    self.coverage.beyond(missed.limit, missed.place)

    def encrypted(self, place: Place, detail: str = "") -> None:
        self.traits.encrypted = True
        self.unread += 1
        self.coverage.encrypted(place, detail)
        if self._has_more_passwords:
            self.coverage.beyond("passwords", place)

    def unsupported(self, place: Place, detail: str) -> None:
        self.traits.unreadable = True
        self.unread += 1
        self.coverage.unsupported(place, detail)

    def damaged(self, place: Place, detail: str) -> None:
        self.traits.unreadable = True
        self.unread += 1
        self.coverage.damaged(place, detail)


Reader = Callable[[SeenFile, Opening], Iterator[Entry]]
