"""The indicators of a message: how often each occurred in 30 days, and one change that blocks several of them.

The same page deletes the held messages of the campaign. A preview stores nothing: the form that confirms it sends the
choice again, and it is checked again.

Security: shows and searches values that a hostile sender chose; every search has a time limit.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from aiohttp import web
from msgspec import Struct

from mailwarden.console.auth import Page
from mailwarden.console.held_actions import HeldActions
from mailwarden.console.indicators import Indicator, indicators_of
from mailwarden.console.language import _
from mailwarden.console.list_form import ListContext, ScopedList, read_comment, read_expiry, scope_name
from mailwarden.console.message_search import read_back
from mailwarden.console.message_view import ListCandidate, candidates_of_request
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, see_other, with_error_status
from mailwarden.console.screens.message import scopes_for, tenant_in
from mailwarden.errors import Forbidden, InvalidQuery, ListFull, MailwardenError, SchemaViolation, SearchTooBroad
from mailwarden.history.store import Cursor, HistoryStore, campaign_for, find_message
from mailwarden.lists.catalogue import find_list
from mailwarden.lists.service import Preview
from mailwarden.lists.store import ListScope
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.policy.impact import Impact
from mailwarden.quarantine.model import ActionResult, HeldMessage
from mailwarden.search.query import MAX_CHARACTERS, parse_query

MONTH = timedelta(days=30)
COUNT_SECONDS = 4.0  # for all indicators of a message together
MAX_FOUND = 200  # messages that are counted for one indicator, or deleted together
AT_ONCE = 3  # searches of one page at a time


class ListBlock(Struct, frozen=True):
    """The chosen values of one list, the effect of adding them, and the impact on the last 30 days."""

    target: ScopedList
    preview: Preview
    impact: Impact | None = None


class HeldCampaign(Struct, frozen=True):
    """The held messages of a campaign that the page offers to delete; there may be more if not `complete`."""

    messages: tuple[HeldMessage, ...] = ()
    complete: bool = True


class Choice(Struct, frozen=True):
    """The values to block, their scope, comment and expiry, as the form states them."""

    scope: ListScope
    chosen: tuple[ListCandidate, ...]
    comment: str
    expires: str

    @property
    def end(self) -> datetime | None:
        return read_expiry(self.expires)

    def entries(self) -> Iterator[tuple[str, str]]:
        """Yield each list with its chosen entries, one a line."""
        for name in dict.fromkeys(each.block for each in self.chosen):
            yield name, "\n".join(each.entry for each in self.chosen if each.block == name)


async def counted(history: HistoryStore, scope: Scope, indicators: Sequence[Indicator]) -> list[Indicator]:
    """Count the messages of 30 days with each indicator, up to MAX_FOUND, in COUNT_SECONDS for all together."""
    places, end = asyncio.Semaphore(AT_ONCE), asyncio.get_running_loop().time() + COUNT_SECONDS

    async def count(each: Indicator) -> Indicator:
        async with places:
            try:
                query = parse_query(each.search[:MAX_CHARACTERS], since=datetime.now(UTC) - MONTH)
                async with asyncio.timeout_at(end):
                    page = await history.search(scope, query, None, MAX_FOUND)
            except (InvalidQuery, SearchTooBroad, TimeoutError):
                return each
        exact = page.complete and page.next is None
        tenants = len({row.tenant for row in page.rows})
        return Indicator(each.label, each.value, each.search, len(page.rows), exact, tenants)

    return [*await asyncio.gather(*map(count, indicators))]


class IndicatorScreen:
    def __init__(self, history: HistoryStore, lists: ListContext, actions: HeldActions) -> None:
        self._history = history
        self._actions = actions
        self._list_service = lists.list_service
        self._impact_estimator = lists.impact_estimator

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/messages/{ggrid}/indicators", Permission.MESSAGES, self.show, quiet=True),
            Page("GET", "/messages/{ggrid}/block", Permission.LISTS_WRITE, self.preview),
            Page("POST", "/messages/{ggrid}/block", Permission.LISTS_WRITE, self.block),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        """Return the indicators with their counts, as a part of the message's page or as a page."""
        finished = await self._found(request)
        indicators = await counted(self._history, request.scope, [*indicators_of(finished, request.scope)])
        template = "message/indicators.html" if request.is_htmx else "message/indicators_page.html"
        return request.render(template, finished=finished, indicators=indicators)

    async def preview(self, request: UserRequest) -> web.StreamResponse:
        """Show the values to choose from, and the impact of those that are chosen."""
        finished = await self._found(request)
        query = request.call.request.query
        given = _Given(query.getall("pick", []), query.get("scope", ""), query.get("comment"), query.get("expires", ""))
        try:
            choice = _choice(request, finished, given)
        except SchemaViolation as error:
            return await self._page(request, finished, _choice(request, finished, _Given()), error)
        return await self._page(request, finished, choice)

    async def block(self, request: UserRequest) -> web.StreamResponse:
        """Add the chosen values to their lists, delete the held messages of the campaign if asked, and return.

        Everything is checked first. Each list is one change; if one fails after another was made, the page says so.
        """
        finished, form = await self._found(request), request.form
        deletes = form.ticked("delete")
        if deletes and not request.may(Permission.QUARANTINE_WRITE):
            raise Forbidden("Your role does not delete held messages. An administrator can change it.")
        given = _Given(form.many("pick"), form.text("scope"), form.text("comment"), form.text("expires"))
        choice = _choice(request, finished, given)
        blocks = [block async for block in self._blocks(choice)]
        added: list[str] = []
        try:
            if blocks or not deletes:
                _check(blocks)
            for block in blocks:
                name, rows = block.target.definition.name, block.preview.rows
                if rows:
                    await self._list_service.import_rows(choice.scope, name, rows, request.actor, action="add")
                    added.append(name)
        except (SchemaViolation, ListFull) as error:
            done = f" Added before: {', '.join(added)}. Undo it in the history of that list." if added else ""
            return await self._page(request, finished, choice, type(error)(f"{error.message}{done}"))
        results = await self._delete(request, finished, choice) if deletes else ()
        if any(result.error for result in results):
            return self._actions.show_results(request, "delete", results, blocked=bool(added))
        return _returned(request, finished, added=bool(added), deletes=deletes)

    async def _delete(self, request: UserRequest, finished: FinishedRequest, choice: Choice) -> Sequence[ActionResult]:
        """Delete those held messages of the campaign that the page showed."""
        shown = set(request.form.many("uid"))
        held = await self._held_of(request, finished, choice.scope)
        uids = [message.uid for message in held.messages if str(message.uid) in shown]
        return await self._actions.act(request, "delete", uids)

    async def _held_of(self, request: UserRequest, finished: FinishedRequest, scope: ListScope) -> HeldCampaign:
        """Return the held messages of 30 days of the message's campaign, in the tenants of the list scope."""
        campaign = campaign_for(request.scope, finished)
        if campaign is None or not request.may(Permission.QUARANTINE_WRITE):
            return HeldCampaign()
        query = parse_query(f"campaign:{campaign} is:held", since=datetime.now(UTC) - MONTH)
        try:
            page = await self._history.search(request.scope.narrowed(scope.tenant), query, None, MAX_FOUND)
        except SearchTooBroad:
            return HeldCampaign(complete=False)
        messages = await self._actions.waiting(request, [Cursor.of(row) for row in page.rows])
        return HeldCampaign(tuple(messages), page.complete and page.next is None)

    async def _blocks(self, choice: Choice) -> AsyncIterator[ListBlock]:
        for name, text in choice.entries():
            target = ScopedList(choice.scope, find_list(name))
            preview = await self._list_service.preview(
                choice.scope, name, text, "txt", comment=choice.comment or None, expires=choice.end
            )
            yield ListBlock(target, preview)

    async def _page(
        self, request: UserRequest, finished: FinishedRequest, choice: Choice, error: MailwardenError | None = None
    ) -> web.Response:
        blocks = [
            ListBlock(block.target, block.preview, await self._estimate_impact(block))
            async for block in self._blocks(choice)
        ]
        page = request.render(
            "message/block.html",
            finished=finished,
            candidates=candidates_of_request(finished),
            choice=choice,
            scopes=scopes_for(request, finished),
            scope="global" if choice.scope.tenant is None else str(choice.scope.tenant),
            scope_name=scope_name(request, choice.scope),
            blocks=blocks,
            new=sum(len(block.preview.rows) for block in blocks),
            campaign=await self._held_of(request, finished, choice.scope),
            list_address=read_back(request.form.text("back") or request.query.get("back", "")),
            error=error,
        )
        return with_error_status(page, error) if error else page

    async def _estimate_impact(self, block: ListBlock) -> Impact | None:
        if not block.preview.fresh:
            return None
        name = block.target.definition.name
        return await self._impact_estimator.estimate(block.target.scope, name, sorted(block.preview.fresh))

    async def _found(self, request: UserRequest) -> FinishedRequest:
        """Return the message of the URL in the user's scope, or raise MessageNotFound."""
        named = tenant_in(request.form.text("tenant") or request.query.get("tenant", ""))
        return await find_message(self._history, request.scope.narrowed(named), request.variables["ggrid"])


def _returned(request: UserRequest, finished: FinishedRequest, *, added: bool, deletes: bool) -> web.Response:
    """Return to the list that the user came from, or to the message."""
    if deletes:
        done = "blocked-deleted" if added else "campaign-deleted"
    else:
        done = "blocked-several" if added else "nothing-new"
    if back := read_back(request.form.text("back")):
        return see_other(back, done)
    return see_other(f"/console/messages/{finished.ggrid}", done, tenant=str(finished.tenant))


class _Given(Struct, frozen=True):
    """The fields of the form as they came."""

    picks: Sequence[str] = ()
    scope: str = ""
    comment: str | None = None
    expires: str = ""


def _choice(request: UserRequest, finished: FinishedRequest, given: _Given) -> Choice:
    """Return the choice; values and scopes that the page does not offer raise SchemaViolation."""
    offered = {each.key: each for each in candidates_of_request(finished)}
    if any(pick not in offered for pick in given.picks):
        raise SchemaViolation("Choose values of this message.")
    wanted = given.scope or str(finished.tenant)
    if wanted not in [value for value, _ in scopes_for(request, finished)]:
        raise SchemaViolation("Choose the tenant of this message, or global if your role allows it.")
    read_expiry(given.expires)
    text = _("From message %(ggrid)s") % {"ggrid": finished.ggrid} if given.comment is None else given.comment
    chosen = tuple(offered[pick] for pick in dict.fromkeys(given.picks))
    return Choice(request.list_scope(wanted), chosen, read_comment(text), given.expires)


def _check(blocks: Sequence[ListBlock]) -> None:
    """Raise before anything is added: nothing is chosen, a value cannot be an entry, or a list is full."""
    if not blocks:
        raise SchemaViolation("Nothing was blocked. Choose at least one value.")
    for block in blocks:
        name = block.target.definition.name
        if block.preview.survey.mistakes:
            raise SchemaViolation(f"Nothing was blocked. {name}: {block.preview.survey.mistakes[0].reason}")
        if not block.preview.fits:
            raise ListFull(f"Nothing was blocked. {name} has room for {block.preview.room:,} more entries.")
