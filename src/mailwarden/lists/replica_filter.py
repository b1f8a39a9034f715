"""A field of bits, shared by the processes of a host, that tells which keys are certainly in no list.

Most of what a message is looked up for is in no list, and the field says so for a fifth of what the file would cost.
Set bits promise nothing: they are set before the entry is written, and never cleared. What the kernel wrote last before
the host went down is not known, so a field is good for one boot of the host: without one the file is asked.
"""

import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from zlib import crc32

_BITS_PER_ENTRY = 16  # at least, when the field is made
_FULL = 8  # bits an entry, below which every eighth key would be looked up in vain
_LEAST, _MOST = 1 << 22, 1 << 31
_SECOND = 0x9E3779B1  # an odd number without pattern, which takes a first place to a second one
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return the name of this boot of the host, or nothing where the system has none."""
    try:
        return _BOOT.read_text("ascii").strip()
    except OSError:
        return ""


def size_for(entries: int) -> int:
    """Return how many bits a field for so many entries has: a power of two, so that a mask finds the place."""
    return min(max(_LEAST, 1 << (entries * _BITS_PER_ENTRY - 1).bit_length()), _MOST)


class ReplicaFilter:
    """The field in one file."""

    def __init__(self, path: Path, *, writing: bool = False) -> None:
        access = mmap.ACCESS_WRITE if writing else mmap.ACCESS_READ
        with path.open("r+b" if writing else "rb") as file:
            self._bits = mmap.mmap(file.fileno(), 0, access=access)
        self._mask = len(self._bits) * 8 - 1

    @classmethod
    def create(cls, path: Path, bits: int) -> "ReplicaFilter":
        with path.open("wb") as file:
            os.truncate(file.fileno(), bits // 8)
        return cls(path, writing=True)

    def is_too_small_for(self, entries: int) -> bool:
        return self._mask + 1 < min(entries * _FULL, _MOST)

    def add(self, list_id: int, keys: Iterable[bytes]) -> None:
        bits, mask = self._bits, self._mask
        for key in keys:
            place = crc32(key, list_id)
            bits[(place & mask) >> 3] |= 1 << (place & 7)
            place = place * _SECOND >> 7
            bits[(place & mask) >> 3] |= 1 << (place & 7)

    def possible(self, list_id: int, keys: Iterable[bytes]) -> list[bytes]:
        """Return those of the keys that may be in the list."""
        bits, mask = self._bits, self._mask
        return [
            key
            for key in keys
            if bits[((place := crc32(key, list_id)) & mask) >> 3] >> (place & 7) & 1
            and bits[((place := place * _SECOND >> 7) & mask) >> 3] >> (place & 7) & 1
        ]

    def close(self) -> None:
        self._bits.close()
