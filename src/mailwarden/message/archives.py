"""Archives opened in memory: what files an attachment holds, under limits, and never trusting declared sizes.

Security: unpacks hostile archives inside a killable worker; nothing is written to disk, sizes are counted while
bytes come out, and it never raises but for want of memory.
"""

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from hashlib import sha256
from typing import Protocol

from msgspec import Struct

from mailwarden.message.archive_kinds import STREAMS, ZIP_END, archive_kind, drop_front, ends_as_zip, name_within
from mailwarden.message.disk_images import walk_iso
from mailwarden.message.limits import LIMITS, Limits
from mailwarden.message.sealed_archives import list_names

_CHUNK = 262_144
_KEPT = 16 * 1024 * 1024  # of a member's content for type detection and nested archives
_MAX_PASSWORDS = 5
_MAX_LOCKED = 1024 * 1024  # bytes of encrypted files that are deciphered, which Python does slowly
_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError,
           NotImplementedError, RuntimeError, KeyError, OverflowError, IndexError, UnicodeError, AttributeError,
           TypeError)  # fmt: skip  # what the readers of the standard library raise on broken input


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


class Member(Struct, frozen=True):
    """One file of an archive: its path such as `a.zip > b.exe`, its real size, its first bytes."""

    path: str
    size: int
    encrypted: bool = False
    head: bytes = b""
    sha256: str = ""
    content: bytes = b""  # whole where it is small enough to be kept, else empty


class ArchiveReport(Struct, frozen=True):
    kind: str  # "" where the content is no archive
    members: tuple[Member, ...] = ()
    encrypted: bool = False
    tripped: tuple[str, ...] = ()  # sentences: limits that the archive ran into
    unreadable: tuple[str, ...] = ()  # sentences: what could not be opened
    joined: bool = False  # a zip behind another, of which programs show the one or the other


class _Tripped(Exception):
    """A limit was reached: nothing more of this attachment is opened."""


def open_archive(name: str, content: bytes, limits: Limits = LIMITS, passwords: tuple[str, ...] = ()) -> ArchiveReport:
    """Look into an archive, and into the archives inside it; `passwords` are tried on small files of a zip."""
    content = drop_front(name, content)
    kind = archive_kind(content)
    if not kind:
        return ArchiveReport("")
    opener = _Opener(limits, tuple(password.encode()[:64] for password in passwords[:_MAX_PASSWORDS]))
    try:
        opener.open(kind, name or "attachment", content, 1)
    except _Tripped as tripped:
        opener.tripped.append(str(tripped))
    return ArchiveReport(
        kind,
        tuple(opener.members),
        opener.encrypted,
        tuple(opener.tripped),
        tuple(dict.fromkeys(opener.unreadable)),
        opener.joined,
    )


class _Opener:
    def __init__(self, limits: Limits, passwords: tuple[bytes, ...] = ()) -> None:
        self.limits = limits
        self._passwords = passwords
        self._locked = _MAX_LOCKED
        self.members: list[Member] = []
        self.tripped: list[str] = []
        self.unreadable: list[str] = []
        self.encrypted = False
        self.joined = False
        self._total = 0

    def open(self, kind: str, path: str, content: bytes, depth: int) -> None:
        if depth > self.limits.archive_depth:
            raise _Tripped(f"Archives are nested more than {self.limits.archive_depth} deep.")
        readers: dict[str, Callable[[bytes], Iterator[tuple[str, _Stream | None, int]]]] = {
            "zip": self._walk_zip, "tar": _walk_tar, "gzip": _walk_gzip, "bzip2": _walk_bzip2, "xz": _walk_xz,
            "iso": _walk_iso,
        }  # fmt: skip
        inner = name_within(path.rpartition(" > ")[2]) if kind in STREAMS else ""
        reader = readers.get(kind)
        if reader is None:
            self._list(kind, path, content)
            return
        try:
            for name, stream, packed in reader(content):
                self._take(f"{path} > {(name or inner)[:255]}", stream, packed, depth)
        except _BROKEN as broken:
            self.unreadable.append(f"{path} cannot be read as {kind}: {type(broken).__name__}.")

    def _list(self, kind: str, path: str, content: bytes) -> None:
        """Take at least the names of what is not opened."""
        names: tuple[str, ...] = ()
        if kind in {"rar", "7z", "cab"}:
            listing = list_names(kind, content)
            self.encrypted = self.encrypted or listing.encrypted
            names = listing.names[: max(self.limits.archive_files - len(self.members), 0)]
            self.members += [Member(f"{path} > {name[:255]}"[:1_000], 0) for name in names]
        why = "is not opened" if names else "cannot be looked into: not even the names of its files are told"
        self.unreadable.append(f"{path} is a {kind} archive, which {why}.")

    def _take(self, path: str, stream: _Stream | None, packed: int, depth: int) -> None:
        if len(self.members) >= self.limits.archive_files:
            raise _Tripped(f"An archive holds more than {self.limits.archive_files:,} files.")
        path = path[:1_000]
        if stream is None:
            self.encrypted = True
            self.members.append(Member(path, 0, encrypted=True))
            return
        try:
            with closing(stream):
                member = self._read(path, stream, packed)
        except _BROKEN as broken:
            self.unreadable.append(f"{path} cannot be read: {type(broken).__name__}.")
            self.members.append(Member(path, 0))
            return
        self.members.append(member)
        content = drop_front(path, member.content)
        kind = archive_kind(content) if content else ""
        if kind:
            self.open(kind, path, content, depth + 1)
        elif not member.content and member.size > _KEPT and archive_kind(member.head):
            self.unreadable.append(f"{path} is an archive too large to be looked into.")

    def _read(self, path: str, stream: _Stream, packed: int) -> Member:
        """Read a member to its end, counting what really comes out."""
        digest = sha256()
        kept: list[bytes] = []
        size = 0
        while chunk := stream.read(_CHUNK):
            size += len(chunk)
            self._total += len(chunk)
            if size > self.limits.archive_member:
                raise _Tripped(f"{path} is larger than {self.limits.archive_member:,} bytes.")
            if self._total > self.limits.archive_bytes:
                raise _Tripped(f"An archive unpacks to more than {self.limits.archive_bytes:,} bytes.")
            if size > self.limits.archive_ratio_from and size > self.limits.archive_ratio * max(packed, 1):
                raise _Tripped(f"{path} unpacks to more than {self.limits.archive_ratio} times its size.")
            digest.update(chunk)
            if size <= _KEPT:
                kept.append(chunk)
        content = b"".join(kept)
        return Member(path, size, False, content[:8_192], digest.hexdigest(), content if size <= _KEPT else b"")

    def _walk_zip(self, content: bytes) -> Iterator[tuple[str, _Stream | None, int]]:
        # The directory is counted before it is read: a million entries would be built in memory first.
        if content.count(b"PK\x01\x02") > self.limits.archive_files:
            raise _Tripped(f"An archive holds more than {self.limits.archive_files:,} files.")
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            self._refuse_overlaps(entries, len(content))
            if content.count(b"PK\x03\x04") < len(entries):
                self.unreadable.append("A zip archive lists files that it does not hold.")
            for entry in entries:
                if entry.is_dir():
                    continue
                if entry.flag_bits & 1:
                    self.encrypted = True
                    yield entry.filename, self._unlock(archive, entry), entry.compress_size
                    continue
                try:
                    stream = archive.open(entry)
                except _BROKEN as broken:
                    self.unreadable.append(f"{entry.filename[:255]} cannot be read: {type(broken).__name__}.")
                    self.members.append(Member(entry.filename[:255], 0))
                    continue
                yield entry.filename, stream, entry.compress_size
        # An empty zip at the end hides what is before it as well as a full one does.
        first = min((entry.header_offset for entry in entries), default=content.rfind(ZIP_END))
        before = content[:first]
        # Once: a third of them changes nothing.
        if not self.joined and before.startswith(b"PK\x03\x04") and ends_as_zip(before):
            self.joined = True
            yield from self._walk_zip(before)

    def _unlock(self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> _Stream | None:
        """Open a small encrypted file by one of the passwords told; the check is dear, so that few are tried."""
        for password in self._passwords:
            self._locked -= entry.compress_size
            if entry.file_size > _MAX_LOCKED or self._locked < 0:
                return None
            try:
                return io.BytesIO(archive.read(entry, password))
            except _BROKEN:  # a wrong password is told by a check sum, or by what cannot be unpacked
                continue
        return None

    def _refuse_overlaps(self, entries: list[zipfile.ZipInfo], size: int) -> None:
        """Refuse files that share bytes: only bombs and tricks do."""
        end = 0
        for entry in sorted(entries, key=lambda each: each.header_offset):
            if entry.header_offset < end:
                raise _Tripped("Files of a zip archive overlap each other.")
            end = entry.header_offset + 30 + max(entry.compress_size, 0)
        if end > size + 30:
            self.unreadable.append("A zip archive declares more bytes than it has.")


def _walk_tar(content: bytes) -> Iterator[tuple[str, _Stream | None, int]]:
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        for entry in archive:
            if entry.isreg() and (stream := archive.extractfile(entry)) is not None:
                # A sparse file claims what the archive does not hold.
                yield entry.name, stream, len(content) if entry.sparse is None else 1


def _walk_iso(content: bytes) -> Iterator[tuple[str, _Stream | None, int]]:
    for name, inside in walk_iso(content):
        yield name, io.BytesIO(inside), len(inside)


def _walk_gzip(content: bytes) -> Iterator[tuple[str, _Stream | None, int]]:
    yield "", gzip.GzipFile(fileobj=io.BytesIO(content)), len(content)


def _walk_bzip2(content: bytes) -> Iterator[tuple[str, _Stream | None, int]]:
    yield "", bz2.BZ2File(io.BytesIO(content)), len(content)


def _walk_xz(content: bytes) -> Iterator[tuple[str, _Stream | None, int]]:
    stream = lzma.open(io.BytesIO(content))  # noqa: SIM115  # closed by who reads it
    yield "", stream, len(content)
