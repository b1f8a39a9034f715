"""Looks up how popular a domain is, and which kind of owner a domain has, in sorted tables of hashes.

A table holds the first 46 bits of a hash for each domain, and two bits for its band. A name that is in no table is
found in one of 1.4 million entries with a probability of 2 in 100 million. All processes of a host share the pages of
the file.

Security: looks up names that senders choose; a lookup takes a few steps and never raises.
"""

import mmap
import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import cache, lru_cache
from hashlib import blake2b
from pathlib import Path

from mailwarden.errors import ConfigurationError
from mailwarden.message.urls import registrable_domain

MAGIC = b"MWDOMS01"
_BUCKETS = 1 << 16  # by the first 16 bits of a hash
_INDEX = 4 * (_BUCKETS + 1)
_HEAD = struct.Struct("<8sI")
_BAND = 3  # the two lowest bits of an entry
HERE = Path(__file__).parent
POPULAR = HERE / "popular-domains.bin"
KINDS = HERE / "domain-kinds.bin"
TOP_NAMES = HERE / "top-domains.txt"


class Band(IntEnum):
    """How popular a registered domain is; a lower number is stronger evidence, 0 is none."""

    UNKNOWN = 0
    TOP = 1  # among the 10,000 most used
    POPULAR = 2  # among the 100,000 most used, or in two lists that are measured in different ways
    LISTED = 3  # among the million of one list


class DomainKind(IntEnum):
    """Domains that give names or mailboxes to any user."""

    OTHER = 0
    DYNAMIC = 1  # any user gets a name below it
    DISPOSABLE = 2  # a mailbox that lives for minutes


class DomainTable:
    """A file of hashes, mapped into memory."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        view = memoryview(data)
        if len(view) < _HEAD.size + _INDEX or _HEAD.unpack_from(view)[0] != MAGIC:
            raise ConfigurationError("The file is no table of domains. Make it with `mailwarden popular-domains`.")
        self.count = int(_HEAD.unpack_from(view)[1])
        index, entries = view[_HEAD.size : _HEAD.size + _INDEX], view[_HEAD.size + _INDEX :]
        if len(entries) != 4 * self.count:
            raise ConfigurationError("The table of domains is incomplete. Make it again.")
        self._index, self._entries = _numbers(index), _numbers(entries)

    @classmethod
    def open(cls, file: Path) -> "DomainTable":
        try:
            with file.open("rb") as opened:
                return cls(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"Cannot read {file}: {error}.") from None
        except ConfigurationError as error:
            raise ConfigurationError(f"{file}: {error.message}") from None

    def band(self, domain: str) -> int:
        """Return the band of a domain, 0 if it is not in the table."""
        bucket, entry = _place(domain)
        end = self._index[bucket + 1]
        at = bisect_left(self._entries, entry, self._index[bucket], end)
        if at < end and self._entries[at] & ~_BAND == entry:
            return self._entries[at] & _BAND
        return 0


def encode_table(bands: Mapping[str, int]) -> bytes:
    """Return a table of domains with their bands, 1 to 3; of two with the same hash the lower band stays."""
    buckets: list[dict[int, int]] = [{} for _ in range(_BUCKETS)]
    for domain, band in bands.items():
        bucket, entry = _place(domain)
        buckets[bucket][entry] = min(band, buckets[bucket].get(entry, band))
    index, entries = array("I", [0]), array("I")
    for held in buckets:
        entries.extend(sorted(entry | band for entry, band in held.items()))
        index.append(len(entries))
    if sys.byteorder == "big":
        index.byteswap()
        entries.byteswap()
    return _HEAD.pack(MAGIC, len(entries)) + index.tobytes() + entries.tobytes()


def rank_domains(
    lists: Iterable[Iterable[tuple[str, int]]], top: int = 10_000, popular: int = 100_000
) -> dict[str, int]:
    """Return the band of each registered domain in lists of names with their rank, 0 for a list without ranks."""
    bands: dict[str, int] = {}
    for names in lists:
        best: dict[str, int] = {}
        for name, rank in names:
            if domain := registrable_domain(name.strip().lower().strip(".")):
                best[domain] = min(rank or sys.maxsize, best.get(domain, sys.maxsize))
        for domain, rank in best.items():
            band = Band.TOP if rank <= top else Band.POPULAR if rank <= popular or domain in bands else Band.LISTED
            bands[domain] = min(band, bands.get(domain, band))
    return bands


class _Opened:
    """The tables in use; the operator's replaces the shipped one."""

    popular: DomainTable | None = None


def use_popular(file: Path) -> None:
    """Use another table of popular domains; a process does it once, before it reads mail."""
    _Opened.popular = DomainTable.open(file)
    band_of.cache_clear()


def popular_domains() -> DomainTable:
    if _Opened.popular is None:
        _Opened.popular = DomainTable.open(POPULAR)
    return _Opened.popular


@cache
def _kinds() -> DomainTable:
    return DomainTable.open(KINDS)


@lru_cache(maxsize=4_096)
def band_of(domain: str) -> Band:
    """Return how popular a registered domain is."""
    return Band(popular_domains().band(domain))


@lru_cache(maxsize=4_096)
def domain_kind(domain: str) -> DomainKind:
    """Return whether a registered domain gives names or mailboxes to any user."""
    return DomainKind(_kinds().band(domain))


def _place(domain: str) -> tuple[int, int]:
    """Return the bucket of a domain, and its entry without a band."""
    digest = blake2b(domain.encode("utf-8", "replace"), digest_size=6).digest()
    return int.from_bytes(digest[:2], "big"), int.from_bytes(digest[2:], "big") & ~_BAND


def _numbers(view: memoryview) -> "memoryview[int] | array[int]":
    if sys.byteorder == "little":
        return view.cast("I")
    numbers = array("I", view.tobytes())
    numbers.byteswap()
    return numbers
