"""Which entry wins: a tenant's before a global one, then the more specific, and on a tie block before allow."""

from collections.abc import Iterable
from uuid import UUID

from msgspec import Struct

from mailwarden.lists.catalogue import Category, find_list

# Lists whose entries say opposite things of one value. Other lists have no rival: each of their matches acts.
RIVALS: tuple[tuple[str, str], ...] = (
    ("sender-block", "sender-allow"),
    ("ip-block", "ip-allow"),
    ("url-block", "url-allow"),
    ("file-hash-block", "file-hash-allow"),
)


class Match(Struct, frozen=True):
    """An entry that was met; without a tenant it is a global one."""

    list_name: str
    entry: str
    tenant: UUID | None = None
    comment: str = ""


def rank(match: Match) -> tuple[bool, int, bool]:
    """Return what matches are compared by: the higher wins. Only matches of one list, or of rivals, compare."""
    definition = find_list(match.list_name)
    return (
        match.tenant is not None,
        definition.kind.specificity(match.entry),
        definition.category is Category.BLOCK,
    )


def winner(matches: Iterable[Match]) -> Match | None:
    """Return the match that wins among those of one list or of two rivals; of equals, the first in order."""
    return max(sorted(matches, key=lambda match: match.entry), key=rank, default=None)
