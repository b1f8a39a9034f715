"""The Feeds screens under Lists: the subscriptions, one feed with its updates, and the decision on one that waits."""

from collections.abc import Sequence

from aiohttp import web

from mailwarden.console.auth import Page
from mailwarden.console.list_form import LISTS
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, read_uid, see_other
from mailwarden.errors import SchemaViolation
from mailwarden.feeds.model import WARNING_TEXTS, Feed, UpdateState
from mailwarden.feeds.service import FeedService
from mailwarden.lists.catalogue import find_list

FEEDS = f"{LISTS}/feeds"


class FeedsScreen:
    def __init__(self, service: FeedService) -> None:
        self._service = service

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/lists/feeds", Permission.LISTS_READ, self.show),
            Page("GET", "/lists/feeds/{feed}", Permission.LISTS_READ, self.show_feed),
            Page("POST", "/lists/feeds/{feed}/decision", Permission.LISTS_WRITE, self.decide),
            Page("POST", "/lists/feeds/{feed}/update", Permission.LISTS_WRITE, self.update),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        feeds = await self._service.store.list(request.view)
        rows = [(feed, await self._service.store.open_update(feed, UpdateState.WAITING)) for feed in feeds]
        return request.render("lists/feeds.html", rows=rows, find_list=find_list)

    async def show_feed(self, request: UserRequest) -> web.StreamResponse:
        feed = await self._find(request)
        entries, dropped = await self._service.store.totals(feed)
        updates = await self._service.store.updates(feed)
        waiting = next((update for update in updates if update.state is UpdateState.WAITING), None)
        return request.render(
            "lists/feed.html",
            feed=feed,
            definition=find_list(feed.settings.list_name),
            entries=entries,
            dropped=dropped,
            updates=updates,
            waiting=waiting,
            warnings=WARNING_TEXTS,
        )

    async def decide(self, request: UserRequest) -> web.StreamResponse:
        """Approve or reject the update that the page showed."""
        feed = await self._find(request)
        update, decision = read_uid(request.form.text("update")), request.form.text("decision")
        if decision == "approve":
            await self._service.approve(feed, update, request.actor)
            return see_other(f"{FEEDS}/{feed.uid}", "feed-approved")
        if decision == "reject":
            await self._service.reject(feed, update, request.actor)
            return see_other(f"{FEEDS}/{feed.uid}", "feed-rejected")
        raise SchemaViolation("The decision is `approve` or `reject`.")

    async def update(self, request: UserRequest) -> web.StreamResponse:
        """Let the job run the feed next."""
        feed = await self._find(request)
        await self._service.update_soon(feed, request.actor)
        return see_other(f"{FEEDS}/{feed.uid}", "feed-due")

    async def _find(self, request: UserRequest) -> Feed:
        return await self._service.store.find(request.scope, read_uid(request.variables["feed"]))
