"""The list entries that act on one message, and the entries that would act for an authenticated sender."""

from collections import Counter
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.model.place import WHOLE_MESSAGE, Place

RECORDED = 100  # entries of one list that history stores for a message


class ListHit(Struct, frozen=True, omit_defaults=True):
    """An entry that matched a message, with the matched value; without a tenant the entry is global."""

    list_name: str
    entry: str
    tenant: UUID | None = None
    comment: str = ""
    value: str = ""
    place: Place = WHOLE_MESSAGE

    @property
    def scope(self) -> str:
        return "global" if self.tenant is None else "tenant"


class Listing(Struct, frozen=True, omit_defaults=True):
    """Every entry that acts; of two lists with opposite effects only the winner is here."""

    acting: tuple[ListHit, ...] = ()
    unproved: tuple[ListHit, ...] = ()  # entries that need an authenticated sender, which this one is not
    allowed_urls: frozenset[str] = frozenset()
    allowed_files: frozenset[str] = frozenset()  # the SHA-256 of each
    protected_sender: str = ""  # the domain of From, if it is protected and not authenticated
    shortened: bool = False  # more entries acted than are recorded here

    def of(self, *names: str) -> tuple[ListHit, ...]:
        return tuple(hit for hit in self.acting if hit.list_name in names)

    def recorded(self) -> "Listing":
        """Return the part that history stores: the first entries of each list, without allowed URLs."""
        count: Counter[str] = Counter()
        kept: list[ListHit] = []
        for hit in self.acting:
            count[hit.list_name] += 1
            if count[hit.list_name] <= RECORDED:
                kept.append(hit)
        return replace(
            self,
            acting=tuple(kept),
            unproved=self.unproved[:RECORDED],
            allowed_urls=frozenset(),
            shortened=len(kept) < len(self.acting),
        )
