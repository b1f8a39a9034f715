"""The entries of the command palette: by role, scope and words."""

from types import SimpleNamespace
from typing import cast
from uuid import uuid4

from mailwarden.access.saved_searches import SavedSearch
from mailwarden.access.users import Role
from mailwarden.console.permissions import Permission, may
from mailwarden.console.request import UserRequest
from mailwarden.console.screens.palette import MAX_FOUND, MAX_TENANTS, entries_for
from mailwarden.model.tenant import Tenant

TENANTS = [Tenant(uuid4(), f"north {number}", domains=(f"n{number}.example",)) for number in range(20)]


def request_of(role: Role, *, whole: bool = True) -> UserRequest:
    """Return what the palette uses of a request: the permissions and the tenants."""
    made = SimpleNamespace(
        may=lambda permission: may(role, Permission(permission), whole_deployment=whole), tenants=TENANTS
    )
    return cast("UserRequest", made)


ROOT, ANALYST = request_of(Role.DEPLOYMENT_ADMINISTRATOR), request_of(Role.ANALYST, whole=False)


def titles(request: UserRequest, text: str, *saved: SavedSearch) -> list[str]:
    return [each.title for each in entries_for(request, text, saved)]


def test_without_words_the_pages_of_the_role_are_listed() -> None:
    found, fewer = titles(ROOT, ""), titles(ANALYST, "")
    assert found[0] == "Dashboard"
    assert {"Health", "New tenant", "Users", "Audit"} <= set(found) - set(fewer)
    assert "Messages" in fewer
    assert not any(title.startswith("north") for title in found)


def test_every_address_is_a_page_of_the_console() -> None:
    for text in ("", "north", "block", "e"):
        for each in entries_for(ROOT, text, [SavedSearch(uuid4(), "mine e", "q=x")]):
            assert each.address.startswith("/console/")


def test_titles_that_begin_with_the_words_come_first_and_the_search_last() -> None:
    found = titles(ROOT, "me")
    assert found[0] == "Messages"
    assert found[-1] == "Search messages for “me”"
    assert titles(ROOT, "from:alice")[0] == "Search messages for “from:alice”"
    assert titles(ROOT, "nothing like it") == ["Search messages for “nothing like it”"]


def test_lists_tenants_and_saved_searches_are_found_by_words() -> None:
    assert "list sender-block" in [each.note for each in entries_for(ROOT, "sender block", ())]
    (tenant,) = [each for each in entries_for(ROOT, "n7.example", ()) if each.note == "tenant"]
    assert (tenant.title, tenant.address) == ("north 7", f"/console/tenants/{TENANTS[7].uid}")
    assert len([each for each in entries_for(ROOT, "north", ()) if each.note == "tenant"]) == MAX_TENANTS
    saved = SavedSearch(uuid4(), "Held invoices", "q=is:held+invoice")
    assert "Held invoices" in titles(ROOT, "invoices", saved)
    assert "Held invoices" not in titles(ROOT, "quarantine", saved)


def test_the_search_stays_within_the_entries_that_are_sent() -> None:
    saved = [SavedSearch(uuid4(), f"search {number}", "q=x") for number in range(50)]
    assert "Search messages for “search”" in titles(ROOT, "search", *saved)[:MAX_FOUND]
