"""Lists in memory that answer as guard's replica does."""

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from mailwarden.errors import StorageUnavailable
from mailwarden.lists.catalogue import find_list
from mailwarden.lists.kinds.networks import PrefixLengths
from mailwarden.lists.kinds.subjects import SubjectMatcher
from mailwarden.lists.matching import Match

TENANT = UUID(int=1)
OTHER = UUID(int=2)


class MemoryLists:
    def __init__(self, *entries: Match, loaded: bool = True) -> None:
        self.entries = entries
        self.noted: list[Match] = []
        self.loaded = loaded

    def match(self, tenant: UUID, keys_by_list: Mapping[str, Iterable[str]]) -> tuple[Match, ...]:
        found: list[Match] = []
        for name, keys in keys_by_list.items():
            if find_list(name).kind.matches_text:
                texts = list(keys)
                found += [m for m in self._of(tenant, name) if any(SubjectMatcher([m.entry]).find(t) for t in texts)]
                continue
            for key in keys:
                found += [match for match in self._of(tenant, name) if find_list(name).kind.key(match.entry) == key]
        return tuple(found)

    def prefix_lengths(self, tenant: UUID, list_name: str) -> PrefixLengths:
        return PrefixLengths.of(match.entry for match in self._of(tenant, list_name))

    def in_use(self, tenant: UUID) -> frozenset[str]:
        if not self.loaded:
            raise StorageUnavailable("The lists have not been copied to this host yet.")
        return frozenset(match.list_name for match in self.entries if match.tenant in {tenant, None})

    def entries_of(self, tenant: UUID, list_name: str, limit: int) -> Sequence[str]:
        return [match.entry for match in self._of(tenant, list_name)][:limit]

    def note_hits(self, matches: Iterable[Match]) -> None:
        self.noted.extend(matches)

    async def prepare(self, tenant: UUID) -> None:
        self.in_use(tenant)

    def _of(self, tenant: UUID, name: str) -> list[Match]:
        return [match for match in self.entries if match.list_name == name and match.tenant in {tenant, None}]


def listed(name: str, text: str, *, everywhere: bool = False, comment: str = "") -> Match:
    """Return an entry of the tenant, or a global one, in the form in which it is stored."""
    return Match(name, find_list(name).spell(text), None if everywhere else TENANT, comment)
