"""The directory of cells in memory, and its copy on disk for the time in which the database is down.

The file has a SHA-256 before its contents. It is replaced by a rename after an fsync, so that a reader finds the old
copy or the new one, and a damaged file is never used.
"""

import hashlib
import os
from pathlib import Path
from uuid import UUID

import msgspec
from msgspec import Struct

MAX_FILE = 1_073_741_824
_DIGEST = 32
_FORMAT = b"mailwarden cells 1\n"


class Place(Struct, frozen=True, array_like=True):
    """The cell of a tenant; every move increments the version, and the higher one is right."""

    cell: str
    version: int


class DirectorySnapshot(Struct, frozen=True):
    """All tenants, domains and API keys of the fleet at one version of the directory."""

    version: int = 0
    tenants: dict[UUID, Place] = {}
    domains: dict[str, UUID] = {}
    keys: dict[str, str] = {}


class DirectoryChanges(Struct, frozen=True):
    """The changed rows of the directory; None stands for a removed one."""

    version: int
    complete: bool  # all rows, not only the changed ones
    tenants: dict[UUID, Place]
    domains: dict[str, UUID | None]
    keys: dict[str, str | None]

    def applied_to(self, old: DirectorySnapshot) -> DirectorySnapshot:
        base = DirectorySnapshot() if self.complete else old
        domains: dict[str, UUID | None] = {**base.domains, **self.domains}
        keys: dict[str, str | None] = {**base.keys, **self.keys}
        return DirectorySnapshot(
            self.version,
            {**base.tenants, **self.tenants},
            {domain: tenant for domain, tenant in domains.items() if tenant is not None},
            {key: cell for key, cell in keys.items() if cell is not None},
        )


def write_copy(path: Path, snapshot: DirectorySnapshot) -> None:
    """Replace the copy on disk."""
    body = msgspec.msgpack.encode(snapshot)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(_FORMAT + hashlib.sha256(body).digest() + body)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read_copy(path: Path) -> DirectorySnapshot | None:
    """Return the copy, or None if there is none or it is damaged."""
    try:
        if path.stat().st_size > MAX_FILE:
            return None
        raw = path.read_bytes()
        digest, body = raw[len(_FORMAT) :][:_DIGEST], raw[len(_FORMAT) + _DIGEST :]
        if not raw.startswith(_FORMAT) or hashlib.sha256(body).digest() != digest:
            return None
        return msgspec.msgpack.decode(body, type=DirectorySnapshot)
    except (OSError, msgspec.MsgspecError):
        return None
