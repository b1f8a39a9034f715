"""The console's menu: one row an entry, shown to those who may open it."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from mailwarden.console.rights import Right


class Entry(Struct, frozen=True):
    title: str
    path: str
    right: Right
    icon: str
    is_current: bool = False


MENU: tuple[Entry, ...] = (
    Entry("Dashboard", "/console/", Right.OVERVIEW, "dashboard"),
    Entry("Messages", "/console/messages", Right.MESSAGES, "messages"),
    Entry("Quarantine", "/console/quarantine", Right.QUARANTINE_READ, "quarantine"),
    Entry("Analyze", "/console/analyze", Right.ANALYZE, "analyze"),
    Entry("Lists", "/console/lists", Right.LISTS_READ, "lists"),
    Entry("Learning", "/console/learning", Right.LEARNING_READ, "learning"),
    Entry("API keys", "/console/keys", Right.KEYS_READ, "keys"),
    Entry("People", "/console/people", Right.PEOPLE_READ, "people"),
    Entry("Tenants", "/console/tenants", Right.TENANTS_READ, "tenants"),
    Entry("Audit", "/console/audit", Right.AUDIT, "audit"),
    Entry("Health", "/console/health", Right.HEALTH, "health"),
)


def entries_for(may: Callable[[Right], bool], path: str) -> Sequence[Entry]:
    """Return the entries that a person may open, with the one they are at marked."""
    return [
        Entry(each.title, each.path, each.right, each.icon, is_current=_is_at(path, each.path))
        for each in MENU
        if may(each.right)
    ]


def _is_at(path: str, entry: str) -> bool:
    return path == entry or (not entry.endswith("/") and path.startswith(entry + "/"))
