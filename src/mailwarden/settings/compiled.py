"""Data of the package in a form that a process reads quickly, used only while it fits the files it was made from."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class CompiledFile(Generic[T]):
    """A file with a digest of its sources and the value that was read from them."""

    def __init__(self, file: Path, kind: type[T], sources: Callable[[], Iterable[Path]]) -> None:
        self.file = file
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._sources = sources

    def read(self) -> T | None:
        """Return the value, or None if there is none or if it was made from other sources."""
        try:
            made, _, body = self.file.read_bytes().partition(b"\n")
            return self._decoder.decode(body) if made == self.digest() else None
        except (OSError, msgspec.DecodeError):
            return None

    def write(self, value: T) -> None:
        """Store the value; a process sees the old file or the new one."""
        self.file.parent.mkdir(exist_ok=True)
        part = self.file.with_suffix(".part")
        part.write_bytes(self.digest() + b"\n" + msgspec.msgpack.encode(value))
        part.replace(self.file)

    def digest(self) -> bytes:
        """Return the digest of the sources, which include the code that reads them."""
        made = hashlib.sha256()
        for path in (*self._sources(), Path(__file__)):
            raw = path.read_bytes()
            made.update(f"{path.name} {len(raw)}\n".encode() + raw)
        return made.hexdigest().encode("ascii")
