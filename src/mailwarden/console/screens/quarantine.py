"""The Quarantine screens: search held messages, release and delete them, one or several.

Security: shows hostile messages as text in a sandboxed frame, and exports them to users with that permission."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import urlencode
from uuid import UUID

from aiohttp import web
from msgspec import Struct

from mailwarden.console.auth import Page
from mailwarden.console.held_actions import ACTIONS, MAX_CHOSEN, HeldActions, action_in, finished_for
from mailwarden.console.language import N_
from mailwarden.console.list_form import MAX_CHOICES
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, with_error_status
from mailwarden.errors import (
    MessageNotFound,
    NotFound,
    SchemaViolation,
)
from mailwarden.history.store import HistoryStore
from mailwarden.model.outcome import Verdict
from mailwarden.quarantine.model import HeldFilter, HeldMessage, PageCursor, State
from mailwarden.quarantine.service import QuarantineService

QUARANTINE = "/console/quarantine"
ANY = "any"
MAX_FILTER = 500
# States of the filter; the first is the default.
STATES: Mapping[str, str] = {
    State.HELD: N_("held"),
    State.RELEASING: N_("being released"),
    State.RELEASED: N_("released"),
    State.DELETED: N_("deleted"),
    ANY: N_("any"),
}
VERDICTS = tuple(each for each in Verdict if each not in (Verdict.CLEAN, Verdict.UNKNOWN))

ROWS = 25


class QuarantineSearch(Struct, frozen=True):
    tenant: str = ""
    verdict: str = ""
    state: str = State.HELD
    recipient: str = ""
    sender: str = ""
    subject: str = ""
    after: PageCursor | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether any filter is set."""
        return self != QuarantineSearch(after=self.after)

    def address(self, **changes: object) -> str:
        """Return the URL of the first page of this search, with changes."""
        given = {
            "tenant": self.tenant,
            "verdict": self.verdict,
            "state": "" if self.state == State.HELD else self.state,
            "recipient": self.recipient,
            "sender": self.sender,
            "subject": self.subject,
            **changes,
        }
        asked = urlencode({name: str(value) for name, value in given.items() if value})
        return f"{QUARANTINE}?{asked}" if asked else QUARANTINE

    def to_older(self, last: HeldMessage) -> str:
        """Return the URL of the page after this message."""
        return self.address(after=f"{last.received.astimezone(UTC).isoformat()}_{last.uid}")

    def question(self, tenant: UUID | None) -> HeldFilter:
        return HeldFilter(
            tenant=tenant,
            verdict=Verdict(self.verdict) if self.verdict else None,
            recipient=_address(self.recipient),
            sender=_address(self.sender),
            text=self.subject or None,
            state=None if self.state == ANY else State(self.state),
            after=self.after,
        )


def read_search(query: Mapping[str, str]) -> QuarantineSearch:
    """Return the filters in the URL, or raise SchemaViolation."""
    verdict, state = query.get("verdict", ""), query.get("state", "") or State.HELD
    if verdict and verdict not in list(Verdict):
        raise SchemaViolation("There is no verdict of that name.")
    if state not in STATES:
        raise SchemaViolation("There is no state of that name.")
    return QuarantineSearch(
        tenant=_typed(query, "tenant"),
        verdict=verdict,
        state=state,
        recipient=_typed(query, "recipient"),
        sender=_typed(query, "sender"),
        subject=_typed(query, "subject"),
        after=_place(query.get("after", "")),
    )


def _typed(query: Mapping[str, str], name: str) -> str:
    return query.get(name, "").strip()[:MAX_FILTER]


def _address(text: str) -> str | None:
    """Return an address, or a domain as `@domain`."""
    if not text:
        return None
    return text if "@" in text else f"@{text}"


def _place(text: str) -> PageCursor | None:
    if not text:
        return None
    moment, _, uid = text.partition("_")
    try:
        return PageCursor(datetime.fromisoformat(moment).astimezone(UTC), UUID(uid))
    except (ValueError, OverflowError):
        raise SchemaViolation("The `after` cursor is invalid.") from None


class QuarantineScreen:
    def __init__(self, quarantine: QuarantineService, history: HistoryStore, actions: HeldActions) -> None:
        self._quarantine = quarantine
        self._history = history
        self._actions = actions

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/quarantine", Permission.QUARANTINE_READ, self.show),
            Page("POST", "/quarantine/chosen", Permission.QUARANTINE_WRITE, self.ask),
            Page("POST", "/quarantine/chosen/do", Permission.QUARANTINE_WRITE, self.do),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        search = read_search(request.query)
        tenant = _tenant_in(request, search)
        found = await self._quarantine.store.page(request.scope, search.question(tenant), ROWS + 1)
        shown = found[:ROWS]
        finished = await finished_for(self._history, request.scope, shown)
        counts = await self._quarantine.store.counts(request.scope, tenant)
        return request.render(
            "quarantine/index.html",
            search=search,
            tenants=request.tenants if len(request.tenants) <= MAX_CHOICES else None,
            messages=shown,
            reasons={uid: self._actions.summary_of(each) for uid, each in finished.items()},
            older=search.to_older(shown[-1]) if len(found) > ROWS else "",
            counts=sorted(counts.items(), key=lambda each: -each[1]),
            total=sum(counts.values()),
            states=STATES,
            verdicts=VERDICTS,
            actions=ACTIONS,
        )

    async def ask(self, request: UserRequest) -> web.StreamResponse:
        """Show the chosen messages and the action, for confirmation; unknown messages are left out."""
        action, chosen = action_in(request), await self._actions.chosen(request, _chosen(request))
        if not chosen:
            raise MessageNotFound("There is no such message in quarantine.")
        return self._actions.ask(request, action, chosen)

    async def do(self, request: UserRequest) -> web.StreamResponse:
        """Apply the action to the messages and show the result of each.

        A release of dangerous messages without the confirmation changes nothing and shows the question again.
        """
        action, uids = action_in(request), _chosen(request)
        if action == "release" and not request.form.ticked("confirmed"):
            chosen = await self._actions.chosen(request, uids)
            if any(message.needs_confirmation for message in chosen):
                error = SchemaViolation("Nothing was released. Confirm that you have read the evidence.")
                return with_error_status(self._actions.ask(request, action, chosen, error=error), error)
        return self._actions.show_results(request, action, await self._actions.act(request, action, uids))


def _tenant_in(request: UserRequest, search: QuarantineSearch) -> UUID | None:
    """Return the tenant by name or UUID, or the active one, or None; raise NotFound for an unknown one."""
    if not search.tenant:
        return request.active_tenant.uid if request.active_tenant else None
    for tenant in request.tenants:
        if search.tenant.casefold() in (str(tenant.uid), tenant.name.casefold()):
            return tenant.uid
    raise NotFound("There is no such tenant.")


def _chosen(request: UserRequest) -> Sequence[UUID]:
    """Return the chosen messages without duplicates."""
    uids = list(dict.fromkeys(uid_in(text) for text in request.form.many("uid")))
    if not uids:
        raise SchemaViolation("No message is chosen: tick some first.")
    if len(uids) > MAX_CHOSEN:
        raise SchemaViolation(f"Choose {MAX_CHOSEN} messages at most.")
    return uids


def uid_in(text: str) -> UUID:
    """Return the uid that a path or a form names, or raise MessageNotFound."""
    try:
        return UUID(text)
    except ValueError:
        raise MessageNotFound("There is no such message in quarantine.") from None
