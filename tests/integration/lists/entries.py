"""Entries as automation adds them."""

from msgspec import UNSET

from mailwarden.lists.requests import ListEntryInput
from mailwarden.lists.service import ListService
from mailwarden.lists.store import ListScope
from mailwarden.model.scope import Actor

SOAR = Actor("key:soar", "192.0.2.7", "request-1")
LIST = "sender-block"


async def add(lists: ListService, scope: ListScope, *entries: str, comment: str | None = None, **more: object) -> None:
    given = [ListEntryInput(entry, UNSET if comment is None else comment, **more) for entry in entries]  # type: ignore[arg-type]
    await lists.add_entries(scope, LIST, given, SOAR)
