"""What the lists say of one message: the entries that won, and those that would have counted for a proved sender."""

from uuid import UUID

from msgspec import Struct


class ListHit(Struct, frozen=True):
    """An entry that a message met, with the value that met it; without a tenant the entry is a global one."""

    list_name: str
    entry: str
    tenant: UUID | None = None
    comment: str = ""
    value: str = ""
    place: str = ""

    @property
    def scope(self) -> str:
        return "global" if self.tenant is None else "tenant"


class Listing(Struct, frozen=True):
    """Every entry that acts: of two lists that say opposite things, only the winner is here."""

    acting: tuple[ListHit, ...] = ()
    unproved: tuple[ListHit, ...] = ()  # let through only an authenticated sender, and this one is not
    allowed_urls: frozenset[str] = frozenset()
    allowed_files: frozenset[str] = frozenset()  # the SHA-256 of each

    def of(self, *names: str) -> tuple[ListHit, ...]:
        return tuple(hit for hit in self.acting if hit.list_name in names)
