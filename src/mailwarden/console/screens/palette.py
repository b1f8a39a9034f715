"""The entries of the command palette: pages that the role may open, lists, tenants, and searches of the user."""

from collections.abc import Iterator, Sequence
from itertools import islice
from urllib.parse import urlencode

import msgspec
from aiohttp import web
from msgspec import Struct

from mailwarden.access.saved_searches import SavedSearch, SavedSearches
from mailwarden.console.auth import Page
from mailwarden.console.language import N_, _, sentence_text, word_text
from mailwarden.console.permissions import Permission
from mailwarden.console.request import MENU, UserRequest
from mailwarden.console.templating import HEADERS
from mailwarden.lists.catalogue import CATALOGUE
from mailwarden.model.tenant import Tenant
from mailwarden.search.query import MAX_CHARACTERS

MAX_TENANTS = 8
MAX_FOUND = 30
MESSAGES = "/console/messages"

# Pages besides those of the menu.
FURTHER: tuple[tuple[str, str, Permission], ...] = (
    (N_("Your account"), "/console/account", Permission.ACCOUNT),
    (N_("First steps and samples"), "/console/start", Permission.ANALYZE),
    (N_("Held messages"), f"{MESSAGES}?q=is:held", Permission.MESSAGES),
    (N_("Undecided messages"), f"{MESSAGES}?q=is:undecided", Permission.MESSAGES),
    (N_("Check a value in the lists"), "/console/lists/check", Permission.LISTS_READ),
    (N_("New tenant"), "/console/tenants/new", Permission.TENANTS_WRITE),
    (N_("New API key"), "/console/keys/new", Permission.KEYS_WRITE),
    (N_("New event receiver"), "/console/receivers/new", Permission.RECEIVERS_WRITE),
    (N_("Invite a user"), "/console/users/new", Permission.USERS_WRITE),
)


class Entry(Struct, frozen=True):
    title: str
    note: str
    address: str


class Found(Struct, frozen=True):
    found: Sequence[Entry]


class PaletteScreen:
    def __init__(self, searches: SavedSearches) -> None:
        self._searches = searches

    def pages(self) -> Sequence[Page]:
        return [Page("GET", "/palette", Permission.ACCOUNT, self.find, quiet=True)]

    async def find(self, request: UserRequest) -> web.StreamResponse:
        """Return the entries that match all words of `q` as JSON; without words the pages and saved searches."""
        text = " ".join(request.query.get("q", "").replace("\x00", "").split())[:MAX_CHARACTERS]
        saved = await self._searches.list(request.user) if request.may(Permission.MESSAGES) else ()
        found = Found(entries_for(request, text, saved)[:MAX_FOUND])
        return web.Response(body=msgspec.json.encode(found), content_type="application/json", headers=HEADERS)


def entries_for(request: UserRequest, text: str, saved: Sequence[SavedSearch]) -> list[Entry]:
    """Return the entries that match, those whose title begins with the text first, and the search for the text."""
    words = text.casefold().split()
    found = [page for page in _pages(request) if _matches(page.title, words)]
    found += [each for each in map(_saved, saved) if _matches(each.title, words)]
    if words:
        found += [
            definition for definition in _lists(request) if _matches(f"{definition.title} {definition.note}", words)
        ]
        found += list(_tenants(request, words))
        found.sort(key=lambda each: not each.title.casefold().startswith(words[0]))
    if text and request.may(Permission.MESSAGES):
        search = Entry(
            _("Search messages for “%(text)s”") % {"text": text}, _("search"), f"{MESSAGES}?{urlencode({'q': text})}"
        )
        found.insert(0 if any(sign in text for sign in ":@.") else len(found[: MAX_FOUND - 1]), search)
    return found


def _matches(text: str, words: Sequence[str]) -> bool:
    folded = text.casefold()
    return all(word in folded for word in words)


def _pages(request: UserRequest) -> Iterator[Entry]:
    for entry in MENU:
        if request.may(entry.permission):
            yield Entry(_(entry.title), _("page"), entry.path)
    for title, address, permission in FURTHER:
        if request.may(permission):
            yield Entry(_(title), _("page"), address)


def _lists(request: UserRequest) -> Iterator[Entry]:
    if request.may(Permission.LISTS_READ):
        for definition in CATALOGUE:
            yield Entry(
                sentence_text(definition.display_name),
                _("list %(name)s") % {"name": definition.name},
                f"/console/lists/{definition.name}",
            )


def _tenants(request: UserRequest, words: Sequence[str]) -> Iterator[Entry]:
    """Yield the tenants whose name or domains match, at most MAX_TENANTS."""
    if request.may(Permission.TENANTS_READ):
        matching = (each for each in request.tenants if _matches(_text_of(each), words))
        for tenant in islice(matching, MAX_TENANTS):
            yield Entry(tenant.name, word_text("tenant"), f"/console/tenants/{tenant.uid}")


def _text_of(tenant: Tenant) -> str:
    return " ".join((tenant.name, *tenant.domains))


def _saved(search: SavedSearch) -> Entry:
    return Entry(search.name, _("saved search"), f"{MESSAGES}?{search.query}")
