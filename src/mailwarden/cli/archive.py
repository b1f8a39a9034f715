"""The archive of a backup: a tar file that ends with a manifest of all digests, and the manifest's own digest.

Security: an archive may be damaged or forged. A reader accepts regular members with the names below and nothing else,
and checks every digest before it returns a byte of a member.
"""

import hashlib
import io
import os
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, Self

import msgspec
from msgspec import Struct

from mailwarden.errors import CommandError

FORMAT = 1
MANIFEST = "manifest.json"
MANIFEST_DIGEST = "manifest.sha256"
DATABASE = "database.dump"
CONFIGURATION = "configuration/"
OUTSIDE = "outside/"
VAULT = "vault/"
CHUNK = 1 << 20
MAX_MANIFEST = 1 << 29
_STORED = re.compile(r"vault/(?:vault|[0-9a-f]{32}/[0-9a-f]{2}/[0-9a-f]{64})")
_NUMBERED = re.compile(r"outside/[0-9]{4}")
_MAX_PATH = 4_096


class Owner(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The owner and permissions of a file or folder, by name: numbers differ between hosts."""

    user: str
    group: str
    mode: int

    @classmethod
    def of(cls, path: Path) -> "Owner":
        found = path.stat()
        return cls(_name(path.owner, found.st_uid), _name(path.group, found.st_gid), found.st_mode & 0o777)


def _name(look_up: Callable[[], str], number: int) -> str:
    try:
        return look_up()
    except KeyError:
        return str(number)


class Manifest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The contents of an archive."""

    version: str  # of Mailwarden
    made: datetime
    digests: Mapping[str, str]  # SHA-256 of each member
    counts: Mapping[str, int]
    format: int = FORMAT
    migrations: tuple[str, ...] = ()  # of the database; none if the archive has no database
    owners: Mapping[str, Owner] = {}  # of configuration files and folders; "." is the folder itself
    folders: Mapping[str, Owner] = {}  # of the folders `vault`, `replica`, `journal` and `spool`
    outside: Mapping[str, str] = {}  # member and path of configured files outside the folder
    missing: tuple[str, ...] = ()  # held messages that were deleted while the backup ran


class ArchiveWriter:
    """Writes members one after the other, and the manifest at the end."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._tar = tarfile.open(fileobj=file, mode="w:", format=tarfile.GNU_FORMAT)  # noqa: SIM115 - see finish
        self.digests: dict[str, str] = {}

    def add(self, name: str, source: IO[bytes]) -> None:
        """Add the bytes of a file from its beginning."""
        size = source.seek(0, os.SEEK_END)
        source.seek(0)
        info = tarfile.TarInfo(name)
        info.size, info.mode = size, 0o600
        hashing = _Hashing(source)
        self._tar.addfile(info, hashing)
        self._tar.members = []  # type: ignore[attr-defined] # tarfile keeps them all otherwise
        self.digests[name] = hashing.digest.hexdigest()

    def add_bytes(self, name: str, contents: bytes) -> None:
        self.add(name, io.BytesIO(contents))

    def finish(self, manifest: Manifest) -> None:
        encoded = msgspec.json.encode(manifest)
        self.add_bytes(MANIFEST, encoded)
        self.add_bytes(MANIFEST_DIGEST, hashlib.sha256(encoded).hexdigest().encode())
        self._tar.close()
        self._file.flush()
        os.fsync(self._file.fileno())


class _Hashing(io.RawIOBase):
    """A file that digests the bytes that are read from it."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        piece = self._source.read(size)
        self.digest.update(piece)
        return piece


class Archive:
    """An opened archive; `check` verifies all of it, and `read` verifies a member again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise CommandError(f"Cannot read {path}: {error.strerror}.") from None
        self._places: dict[str, tuple[int, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def check(self, advance: Callable[[int], None] | None = None) -> Manifest:
        """Verify the structure and every digest; raise CommandError with the first damaged member."""
        self._index()
        manifest = self._manifest()
        expected = {*manifest.digests, MANIFEST, MANIFEST_DIGEST}
        if missing := sorted(expected - {*self._places}):
            raise self._damaged(f"it lacks {missing[0]}")
        if unknown := sorted({*self._places} - expected):
            raise self._damaged(f"its manifest does not name {unknown[0]}")
        for name in manifest.digests:
            for piece in self.read(name, manifest):
                if advance is not None:
                    advance(len(piece))
        return manifest

    @property
    def size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def read(self, name: str, manifest: Manifest) -> Iterator[bytes]:
        """Yield the bytes of a member; raise CommandError at the end if they are not those of the manifest."""
        digest = hashlib.sha256()
        for piece in self._pieces(name):
            digest.update(piece)
            yield piece
        if digest.hexdigest() != manifest.digests[name]:
            raise self._damaged(f"the digest of {name} is wrong")

    def _pieces(self, name: str) -> Iterator[bytes]:
        start, size = self._places[name]
        while size:
            piece = os.pread(self._file.fileno(), min(size, CHUNK), start)
            if not piece:
                raise self._damaged(f"it ends inside {name}")
            yield piece
            start, size = start + len(piece), size - len(piece)

    def _index(self) -> None:
        self._places.clear()
        end = 0
        try:
            with tarfile.open(fileobj=self._file, mode="r:") as tar:
                while (member := tar.next()) is not None:
                    tar.members = []  # type: ignore[attr-defined] # as above
                    if not member.isreg() or not is_member_name(member.name) or member.name in self._places:
                        raise self._damaged(f"`{member.name[:200]!a}` is not a member of a backup")
                    self._places[member.name] = member.offset_data, member.size
                    end = member.offset_data + member.size
                    self._require_zeros(end, -end % tarfile.BLOCKSIZE)
        except (tarfile.TarError, OSError, ValueError) as error:
            raise self._damaged(str(error)) from None
        if MANIFEST_DIGEST not in self._places:
            raise self._damaged("it is incomplete")
        if self.size % tarfile.RECORDSIZE:
            raise self._damaged("its end is missing")
        self._require_zeros(end, self.size - end)

    def _require_zeros(self, start: int, count: int) -> None:
        if count > 2 * tarfile.RECORDSIZE or any(os.pread(self._file.fileno(), count, start)):
            raise self._damaged("it has unknown data between its members")

    def _manifest(self) -> Manifest:
        for name, limit in ((MANIFEST, MAX_MANIFEST), (MANIFEST_DIGEST, 64)):
            if name not in self._places or self._places[name][1] > limit:
                raise self._damaged("its manifest is missing or too large")
        encoded = b"".join(self._pieces(MANIFEST))
        if hashlib.sha256(encoded).hexdigest().encode() != b"".join(self._pieces(MANIFEST_DIGEST)):
            raise self._damaged("the digest of its manifest is wrong")
        try:
            kind = msgspec.json.decode(encoded, type=_FormatOnly).format
            if kind != FORMAT:
                raise CommandError(
                    f"{self._path} has format {kind}; this version reads {FORMAT}. Install the version that made it."
                )
            manifest = msgspec.json.decode(encoded, type=Manifest)
        except msgspec.DecodeError as error:
            raise self._damaged(f"its manifest is invalid ({error})") from None
        for path in manifest.owners:
            if path != "." and not is_inside_path(path):
                raise self._damaged(f"`{path[:200]!a}` is not a path inside the configuration folder")
        return manifest

    def _damaged(self, reason: str) -> CommandError:
        return CommandError(f"{self._path} is not an intact backup: {reason}. Nothing was changed.")


class _FormatOnly(Struct, frozen=True):
    format: int = 0


def is_member_name(name: str) -> bool:
    if name in (MANIFEST, MANIFEST_DIGEST, DATABASE) or _STORED.fullmatch(name) or _NUMBERED.fullmatch(name):
        return True
    return name.startswith(CONFIGURATION) and is_inside_path(name.removeprefix(CONFIGURATION))


def is_inside_path(path: str) -> bool:
    """Return whether a relative path stays inside its folder, component by component."""
    parts = path.split("/")
    usable = all(part not in ("", ".", "..") and "\0" not in part for part in parts)
    return usable and len(path) <= _MAX_PATH
