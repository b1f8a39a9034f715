"""The Messages screen: search in history, follow new messages, save and export searches.

The URL contains the whole search, so that users can bookmark and share it.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from urllib.parse import parse_qsl
from uuid import UUID

import msgspec
from aiohttp import web

from mailwarden.access.audit import AuditStore
from mailwarden.access.saved_searches import SavedSearches
from mailwarden.console.auth import Page
from mailwarden.console.exports import format_in, send_file
from mailwarden.console.language import N_, _, minute_text, sentence_text, word_text
from mailwarden.console.message_export import Stop, as_csv, as_ndjson
from mailwarden.console.message_rows import Entry, entries_of
from mailwarden.console.message_search import ADDRESS, ORDERS, RANGES, Search, read_search
from mailwarden.console.message_status import PARTICIPLES
from mailwarden.console.near_matches import find_near_matches
from mailwarden.console.permissions import Permission
from mailwarden.console.policy_texts import reason_in_language
from mailwarden.console.request import UserRequest, read_uid, see_other
from mailwarden.console.templating import HEADERS
from mailwarden.errors import (
    InvalidQuery,
    SearchTooBroad,
)
from mailwarden.history.all_pages import read_pages
from mailwarden.history.store import MAX_ROWS, Cursor, Facets, HistoryStore, Order, Row
from mailwarden.history.store import Page as Found
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.outcome import Decision
from mailwarden.policy.rules import Policy
from mailwarden.quarantine.service import QuarantineService
from mailwarden.search.completions import completions
from mailwarden.search.query import MAX_CHARACTERS, Query, parse_query
from mailwarden.serving.errors import STATUS_OF

ROWS = 50
MAX_FACETS = 12  # values of one kind that narrow a search
MAX_EXPORTED = 20_000
EXPORT_SECONDS = 120.0
# The state of a message that quarantine does not hold, by its decision.
DONE: Mapping[Decision, str] = {**PARTICIPLES, Decision.UNDECIDED: "undecided"}
# The search help: an example of each operator, and its meaning.
HELP: Sequence[tuple[str, str]] = (
    ("from:alice@sender.example", N_("the address in From, or the envelope's sender")),
    ("invoic", N_("a word, or its beginning, in the subject, a name, an address or a domain; accents do not matter")),
    ('"gift card"', N_("words side by side, in the subject or the From's display name")),
    ("from:sender.example", N_("every sender of the domain and its subdomains; from:<> is the null sender")),
    ("from:bjorn", N_('words of the sender\'s name, address or domain; from:nordlicht, from:"Jane Doe"')),
    ("to:bob@acme.example", N_("a recipient, a domain with its subdomains, or a part of the address")),
    ('subject:"gift card"', N_("words of the subject, side by side")),
    ("domain:evil.example", N_("the domain or a subdomain of a sender, a recipient or a link")),
    ("ip:192.0.2.0/24", N_("the address that handed the message over, or its network")),
    ("tag:url.display-mismatch", N_("a tag; several with commas mean any of them")),
    ("verdict:phishing,malware", N_("the verdict")),
    ("decision:quarantine", N_("the decision")),
    ("is:held", N_("held in quarantine; also is:released, is:reported by a user, and is:undecided")),
    ('tenant:"Acme Ltd"', N_("a tenant, by name or uid")),
    (
        "url:evil.example/login",
        N_("the host of a link with its subdomains, or one page; defanged links are understood"),
    ),
    ("hash:9f86d0…", N_("the SHA-256 of a message or of a part")),
    ("campaign:6f1d2c…", N_("messages that are similar to each other, by the id of their campaign")),
    ("ggrid:01a1dd…", N_("one message, by its id")),
    ("-verdict:clean", N_("a minus negates any operator")),
)


class MessagesScreen:
    def __init__(
        self,
        history: HistoryStore,
        quarantine: QuarantineService,
        audit: AuditStore,
        searches: SavedSearches,
        policy: Policy,
    ) -> None:
        self._history = history
        self._quarantine = quarantine
        self._reason_of = partial(reason_in_language, policy)
        self._audit = audit
        self._searches = searches

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/messages", Permission.MESSAGES, self.show),
            Page("GET", "/messages/tail/rows", Permission.MESSAGES, self.show_rows, quiet=True),
            Page("GET", "/messages/search/facets", Permission.MESSAGES, self.show_facets, quiet=True),
            Page("GET", "/messages/search/completions", Permission.MESSAGES, self.complete, quiet=True),
            Page("POST", "/messages/search/saved", Permission.MESSAGES, self.save),
            Page("POST", "/messages/search/saved/{saved}/delete", Permission.MESSAGES, self.delete_saved),
            Page("GET", "/messages/search/export/{format}", Permission.MESSAGES, self.export),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        """Show the page; an invalid search shows its error and no rows."""
        status, mistake, query, found, near = 200, "", Query(), Found(()), None
        search = Search(text=request.query.get("q", "")[: MAX_CHARACTERS + 1])
        try:
            search = read_search(request.query)
            query = query_of(request, search)
            found = await self._history.search(request.scope, query, search.before, ROWS, search.order)
            if request.query.get("near") == "1" and is_empty(search, query, found):
                near = await find_near_matches(
                    self._history, request.scope, search.text, query, tenants_by_name(request)
                )
        except (InvalidQuery, SearchTooBroad) as error:
            status, mistake = STATUS_OF[type(error)], error.message
        newest = found.rows[0].ggrid if found.rows else new_ggrid()
        return request.render(
            "messages/index.html",
            status=status,
            search=search,
            conditions=understood(request, query),
            found=found,
            entries=shown_entries(search, query, found),
            state_of=await self._states(request, found),
            reason_of=self._reason_of,
            chooses=may_choose(request, search),
            near=near,
            is_empty=is_empty(search, query, found),
            saved=await self._searches.list(request.user),
            mistake=mistake,
            newest=newest,
            ranges=RANGES,
            orders=ORDERS,
            export_order=export_order(search),
            sorted_by=sorted_by(search.order, found),
            help=HELP,
        )

    async def _states(self, request: UserRequest, page: Found) -> Callable[[Row], str]:
        """Return the present state of a row: in quarantine if the user may see it, else by its decision."""
        places = [(row.ggrid, row.tenant) for row in page.rows if row.decision is Decision.QUARANTINE]
        readable = places and request.may(Permission.QUARANTINE_READ)
        states = await self._quarantine.store.states(request.scope, places) if readable else {}
        return lambda row: states.get((row.ggrid, row.tenant)) or DONE[row.decision]

    async def show_rows(self, request: UserRequest) -> web.StreamResponse:
        """Return the newest rows for a page that follows; late messages are sorted in."""
        search = read_search(request.query)
        found = await self._history.search(request.scope, query_of(request, search), None, ROWS)
        return request.render(
            "messages/rows.html",
            search=search,
            entries=entries_of(found.rows, grouped=False),
            state_of=await self._states(request, found),
            chooses=False,
            reason_of=self._reason_of,
        )

    async def show_facets(self, request: UserRequest) -> web.StreamResponse:
        """Return the number of matches and what narrows the search, for a page that is shown already."""
        search = read_search(request.query)
        facets = await self._history.facets(request.scope, query_of(request, search))
        return request.render(
            "messages/facets.html", search=search, facets=facets, groups=facet_groups(request, facets)
        )

    async def complete(self, request: UserRequest) -> web.StreamResponse:
        """Return completions of the text up to the caret as JSON, from recent messages that the user may see."""
        vocabulary = await self._history.vocabulary(request.view)
        text = request.query.get("q", "").replace("\x00", "")
        found = completions(text, vocabulary, [tenant.name for tenant in request.tenants])
        told = tuple(msgspec.structs.replace(each, kind=sentence_text(each.kind)) for each in found.found)
        found = msgspec.structs.replace(found, found=told)
        return web.Response(body=msgspec.json.encode(found), content_type="application/json", headers=HEADERS)

    async def save(self, request: UserRequest) -> web.StreamResponse:
        """Save the search of a page under a name, without the place in its pages."""
        search = read_search(dict(parse_qsl(request.form.text("search"))))
        query_of(request, search)  # an invalid search is not saved
        query = search.first_page().partition("?")[2]
        await self._searches.save(request.user, request.form.text("name"), query, request.actor)
        return see_other(ADDRESS, "search-saved", **dict(parse_qsl(query)))

    async def delete_saved(self, request: UserRequest) -> web.StreamResponse:
        await self._searches.delete(request.user, read_uid(request.variables["saved"]), request.actor)
        return see_other(ADDRESS, "search-deleted")

    async def export(self, request: UserRequest) -> web.StreamResponse:
        """Stream the newest matches as a file, up to MAX_EXPORTED, and record that in the audit log."""
        form = format_in(request, "Messages are")
        search = read_search(request.query)
        query = query_of(request, search)
        order = export_order(search)
        first = await self._history.search(request.scope, query, None, MAX_ROWS, order)
        details = {"search": search.text, "range": search.range, "order": order, "format": form}
        await self._audit.record(request.scope, request.actor, "messages.export", "messages", details)
        write = as_csv if form == "csv" else as_ndjson
        matches = self._matches(request, query, first, order)
        return await send_file(request, "messages", form, write(matches, request.tenant_name))

    async def _matches(
        self, request: UserRequest, query: Query, page: Found, order: Order
    ) -> AsyncIterator[Sequence[Row] | Stop]:
        """Yield the rows of one page after the other, and a Stop if matches are left out."""

        async def read(place: Cursor | None, rows: int) -> Found:
            return await self._history.search(request.scope, query, place, rows, order)

        last = page
        async for last in read_pages(read, page, max_rows=MAX_EXPORTED, seconds=EXPORT_SECONDS):
            yield last.rows
        if last.next is not None:
            yield Stop(last.next, newer=order is Order.OLDEST)


def shown_entries(search: Search, query: Query, found: Found) -> Sequence[Entry]:
    """Return the rows of the list; a page that follows and the search for a campaign show each message."""
    grouped = not search.tail and all(condition.operator != "campaign" for condition in query.conditions)
    return entries_of(found.rows, grouped=grouped)


def may_choose(request: UserRequest, search: Search) -> bool:
    """Return whether messages can be ticked: a page that follows replaces its rows all the time."""
    return not search.tail and (request.may(Permission.QUARANTINE_WRITE) or request.may(Permission.TRAINING_WRITE))


def is_empty(search: Search, query: Query, found: Found) -> bool:
    """Return whether a search with terms or a time range has read everything and found nothing."""
    has_more = found.rows or not found.complete or search.before or search.tail
    return not has_more and bool(query.conditions or query.since or query.until)


def export_order(search: Search) -> Order:
    """Return the order of an export: by points only the newest matches can be compared, so that it is by time."""
    return Order.NEWEST if search.order is Order.POINTS else search.order


def sorted_by(order: Order, found: Found) -> str:
    """Return what the messages of a page are sorted by, as one sentence."""
    if order is Order.POINTS and not found.complete:
        if found.searched_to is None:
            return _("Most points first, of the newest matches only. Older matches are not compared.")
        sentence = _(
            "Most points first, of the newest matches only (since %(time)s UTC). Older matches are not compared."
        )
        return sentence % {"time": minute_text(found.searched_to)}
    text = _(ORDERS[order])
    return f"{text[:1].upper()}{text[1:]}."


def facet_groups(request: UserRequest, facets: Facets) -> list[tuple[str, list[tuple[str, str, int]]]]:
    """Return the values that narrow a search by their heading: the shown text, the term, and the number of matches."""
    tenants = [
        (request.tenant_name(tenant), f"tenant:{tenant}", number) for tenant, number in facets.tenants.items()
    ] if len(request.tenants) > 1 else []  # fmt: skip
    groups = {
        N_("Tenant"): tenants,
        N_("Verdict"): [(word_text(each), f"verdict:{each}", number) for each, number in facets.verdicts.items()],
        N_("Decision"): [(word_text(each), f"decision:{each}", number) for each, number in facets.decisions.items()],
        N_("State"): [(word_text(each), f"is:{each}", number) for each, number in facets.states.items() if number],
    }
    return [
        (title, sorted(values, key=lambda value: (-value[2], value[0]))[:MAX_FACETS])
        for title, values in groups.items()
        if values
    ]


def query_of(request: UserRequest, search: Search) -> Query:
    """Return the query for history, in the active tenant; it knows the names of the tenants that this user may see."""
    _, length = RANGES[search.range]
    since = datetime.now(UTC) - length if length else None
    until = None
    if search.range == "between":
        since, until = _time(search.since, "beginning"), _time(search.until, "end")
    return in_active_tenant(
        request, parse_query(search.text, since=since, until=until, tenants=tenants_by_name(request))
    )


def in_active_tenant(request: UserRequest, query: Query) -> Query:
    """Return the query with the tenant that the user has switched to, unless it names tenants itself."""
    active = request.active_tenant
    if active is None or any(condition.operator == "tenant" for condition in query.conditions):
        return query
    own = parse_query(f"tenant:{active.uid}", tenants={active.name: active.uid})
    return msgspec.structs.replace(query, conditions=(*query.conditions, *own.conditions))


def tenants_by_name(request: UserRequest) -> Mapping[str, UUID]:
    """Return the tenants that `tenant:` accepts from this user."""
    return {tenant.name: tenant.uid for tenant in request.tenants}


def understood(request: UserRequest, query: Query) -> list[tuple[str, str]]:
    """Return each parsed term as operator and value; `word` is no operator that a user writes."""
    terms = []
    for condition in query.conditions:
        operator = sentence_text("word") if condition.operator == "word" else condition.operator
        shown = _("not %(operator)s") % {"operator": operator} if condition.negated else operator
        is_tenant = condition.operator == "tenant"
        terms.append((shown, request.tenant_name(UUID(condition.value)) if is_tenant else condition.value))
    return terms


def _time(text: str, name: str) -> datetime | None:
    """Return the time in a form field, in UTC if it has no zone."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidQuery(f"The {name} of the time range is a time such as 2026-11-15T08:30.") from None
