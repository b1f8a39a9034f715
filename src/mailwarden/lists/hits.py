"""How often entries were met: counted in memory, a bounded number of them, until somebody writes them down."""

import time
from collections.abc import Mapping

from msgspec import Struct

MAX_COUNTED = 20_000  # different entries between two writings; further ones go uncounted


class Hit(Struct):
    """How often one entry was met since the last writing, and when last, in seconds."""

    count: int
    last: float


Hits = Mapping[tuple[int, str], Hit]
"""By the list's number and the entry."""


class HitCounter:
    def __init__(self, limit: int = MAX_COUNTED) -> None:
        self._limit = limit
        self._hits: dict[tuple[int, str], Hit] = {}
        self.lost = 0

    def note(self, list_id: int, entry: str) -> None:
        hit = self._hits.get((list_id, entry))
        if hit is not None:
            hit.count += 1
            hit.last = time.time()
        elif len(self._hits) < self._limit:
            self._hits[list_id, entry] = Hit(1, time.time())
        else:
            self.lost += 1

    def take(self) -> Hits:
        """Return what was counted, and begin anew."""
        taken, self._hits = self._hits, {}
        return taken

    def give_back(self, hits: Hits) -> None:
        """Count what could not be written once more."""
        for key, hit in hits.items():
            known = self._hits.get(key)
            if known is not None:
                known.count += hit.count
            elif len(self._hits) < self._limit:
                self._hits[key] = hit
            else:
                self.lost += hit.count
