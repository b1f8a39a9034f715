"""The searches for the indicators of a message, and their bounded counts."""

from types import SimpleNamespace
from typing import cast
from uuid import uuid4

from msgspec.structs import replace

from mailwarden.console.indicators import Indicator, indicators_of
from mailwarden.console.screens.indicators import counted
from mailwarden.errors import SearchTooBroad
from mailwarden.history.store import Cursor, HistoryStore, Page
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.record import CampaignIds
from mailwarden.model.scope import Scope
from mailwarden.search.query import Query, parse_query
from tests.samples.finished import finished_request


def test_every_indicator_has_a_valid_search() -> None:
    request = finished_request()
    odd = 'Re: "urgent" from:evil -verdict:clean'
    for sender, subject in (("eve@evil.example", odd), ('"a b"@evil.example', "x " * 300), ("", "")):
        changed = replace(request, summary=replace(request.summary, from_address=sender, subject=subject))
        for each in indicators_of(replace(changed, campaign=CampaignIds(uuid4(), uuid4())), Scope.deployment()):
            assert parse_query(each.search).conditions, each
            assert len(parse_query(each.search).conditions) == 1, each


class Answers:
    """A history with more matches than a page, none, and searches that are too broad."""

    async def search(self, _: Scope, query: Query, __: object, limit: int) -> Page:
        word = query.conditions[0].value
        if "broad" in word:
            raise SearchTooBroad("Too broad.")
        rows = tuple(SimpleNamespace(tenant=number % 2) for number in range(limit)) if "many" in word else ()
        return Page(cast("tuple[()]", rows), next=Cursor(new_ggrid()) if rows else None)


async def test_counts_are_bounded() -> None:
    asked = [Indicator("Sender", "x", f"from:{word}@x.example") for word in ("many", "none", "broad")]
    history = cast("HistoryStore", Answers())
    found = await counted(history, Scope.deployment(), [*asked, Indicator("Subject", "x", "form:wrong")])
    assert [(each.total, each.exact) for each in found] == [(200, False), (0, True), (None, True), (None, True)]
    assert [each.tenants for each in found] == [2, 0, 0, 0]
