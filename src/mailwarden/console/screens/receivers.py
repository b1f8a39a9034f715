"""The Event receivers screen: the receivers of events, their secrets, tests and the state of their deliveries.

Security: tenants are separated here. Users of tenants see and change the receivers of their tenants alone. A receiver
with tenants reaches public addresses only, see `event_delivery.addresses`.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

from aiohttp import web

from mailwarden.access.sessions import Sessions
from mailwarden.console.auth import Page, VisitorSessions
from mailwarden.console.language import N_, _
from mailwarden.console.permissions import Permission
from mailwarden.console.request import GLOBAL, UserRequest, read_uid, see_other, with_error_status
from mailwarden.console.screens.keys import MAX_TENANT_MENU, tenant_uid_of
from mailwarden.errors import NameTaken, Overloaded, SchemaViolation
from mailwarden.event_delivery.http_client import DeliveryFailed
from mailwarden.event_delivery.model import Format, Kind, NewReceiver, Receiver, State
from mailwarden.event_delivery.senders import Channels
from mailwarden.event_delivery.service import ReceiverService
from mailwarden.events.catalogue import CATALOGUE, ReceiverTest

RECEIVERS = "/console/receivers"
MAX_TESTS = 16  # of all users at once, one of each: a test waits for a receiver
KINDS = (
    (Kind.WEBHOOK, N_("Webhook: https://…")),
    (Kind.SYSLOG, N_("Syslog over TLS: tls://host:6514")),
    (Kind.FILE, N_("File in the events folder: siem.ndjson")),
)
FORMATS = (
    (Format.NATIVE, N_("Native: as GET /v1/events")),
    (Format.OCSF, "OCSF 1.5.0"),
    (Format.ECS, "ECS 8.17"),
)
OVERLAPS = (
    ("0", N_("No overlap: the old secret ends now")),
    ("1", N_("1 hour")),
    ("24", N_("1 day")),
    ("168", N_("7 days")),
)
TYPES = tuple(name for name in CATALOGUE if name != ReceiverTest.type)  # a test goes to its receiver in any case

T = TypeVar("T")


class ReceiversScreen:
    def __init__(self, service: ReceiverService, channels: Channels, visitors: VisitorSessions) -> None:
        self._service = service
        self._channels = channels
        self._visitors = visitors
        self._tests: set[UUID] = set()  # the users whose test is running

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/receivers", Permission.RECEIVERS_READ, self.show),
            Page("GET", "/receivers/new", Permission.RECEIVERS_WRITE, self.show_form),
            Page("POST", "/receivers/new", Permission.RECEIVERS_WRITE, self.create),
            Page("GET", "/receivers/made", Permission.RECEIVERS_WRITE, self.show_made),
            Page("GET", "/receivers/{receiver}", Permission.RECEIVERS_READ, self.show_receiver),
            Page("POST", "/receivers/{receiver}/test", Permission.RECEIVERS_WRITE, self.test),
            Page("POST", "/receivers/{receiver}/pause", Permission.RECEIVERS_WRITE, self.pause),
            Page("POST", "/receivers/{receiver}/enable", Permission.RECEIVERS_WRITE, self.enable),
            Page("GET", "/receivers/{receiver}/rotate", Permission.RECEIVERS_WRITE, self.show_rotation),
            Page("POST", "/receivers/{receiver}/rotate", Permission.RECEIVERS_WRITE, self.rotate),
            Page("GET", "/receivers/{receiver}/delete", Permission.RECEIVERS_WRITE, self.show_deletion),
            Page("POST", "/receivers/{receiver}/delete", Permission.RECEIVERS_WRITE, self.delete),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        rows = [(receiver, state_of(receiver)) for receiver in await self._service.list(request.view)]
        return request.render("receivers/index.html", rows=rows, tenants_of=_tenant_names(request))

    async def show_form(self, request: UserRequest) -> web.StreamResponse:
        active = request.active_tenant
        return self._render_form(request, {"bound": str(active.uid) if active else "", "batch": "1", "seconds": "0"})

    async def create(self, request: UserRequest) -> web.StreamResponse:
        form = request.form
        given = {name: form.text(name) for name in ("name", "kind", "target", "format", "bound", "batch", "seconds")}
        try:
            wanted = _read(request, given, form.many("types"))
            receiver, secret = await self._service.add(request.scope, wanted, request.actor)
        except (SchemaViolation, NameTaken) as error:
            page = self._render_form(request, {**given, "types": form.many("types")}, error.message)
            return with_error_status(page, error)
        if not secret:
            return see_other(f"{RECEIVERS}/{receiver.uid}", "receiver-made")
        return await self._show_secret(request, receiver, secret)

    async def show_made(self, request: UserRequest) -> web.StreamResponse:
        """Show the secret once; a reload shows that it is gone."""
        shown = await self._sessions.take_shown(request.session, "receiver")
        if not shown:
            return request.render("receivers/made.html", receiver=None, secret="")
        receiver = await self._service.find(request.scope, read_uid(shown["receiver"]))
        return request.render("receivers/made.html", receiver=receiver, secret=shown["secret"])

    async def show_receiver(self, request: UserRequest) -> web.StreamResponse:
        return self._render(request, await self._find(request))

    async def test(self, request: UserRequest) -> web.StreamResponse:
        """Send one test event; a failure is shown on the receiver's page and counts nowhere."""
        receiver = await self._find(request)
        if len(self._tests) >= MAX_TESTS or request.user.uid in self._tests:
            raise Overloaded("Other tests are running. Try again in a few seconds.", retry_after=5)
        self._tests.add(request.user.uid)
        try:
            await self._service.test(request.scope, receiver.uid, self._channels, request.actor)
        except DeliveryFailed as failure:
            return self._render(request, receiver, failure.sentence)
        except SchemaViolation as error:
            return self._render(request, receiver, error.message)
        finally:
            self._tests.discard(request.user.uid)
        return see_other(f"{RECEIVERS}/{receiver.uid}", "receiver-tested")

    async def pause(self, request: UserRequest) -> web.StreamResponse:
        receiver = await self._service.disable(request.scope, _uid(request), request.actor)
        return see_other(f"{RECEIVERS}/{receiver.uid}", "receiver-paused")

    async def enable(self, request: UserRequest) -> web.StreamResponse:
        receiver = await self._service.enable(request.scope, _uid(request), request.actor)
        return see_other(f"{RECEIVERS}/{receiver.uid}", "receiver-enabled")

    async def show_rotation(self, request: UserRequest) -> web.StreamResponse:
        receiver = await self._find(request)
        if receiver.kind is not Kind.WEBHOOK:
            raise SchemaViolation("Only webhooks have a secret.")
        return request.render("receivers/rotate.html", receiver=receiver, overlaps=OVERLAPS)

    async def rotate(self, request: UserRequest) -> web.StreamResponse:
        uid, hours = _uid(request), request.form.text("overlap")
        await self._service.find(request.scope, uid)
        if hours not in dict(OVERLAPS):
            raise SchemaViolation("Choose how long the old secret stays valid.")
        receiver, secret = await self._service.rotate(request.scope, uid, request.actor, timedelta(hours=int(hours)))
        return await self._show_secret(request, receiver, secret)

    async def show_deletion(self, request: UserRequest) -> web.StreamResponse:
        return request.render("receivers/delete.html", receiver=await self._find(request))

    async def delete(self, request: UserRequest) -> web.StreamResponse:
        await self._service.remove(request.scope, _uid(request), request.actor)
        return see_other(RECEIVERS, "receiver-deleted")

    @property
    def _sessions(self) -> Sessions:
        return self._visitors.registry.sessions

    async def _find(self, request: UserRequest) -> Receiver:
        return await self._service.find(request.scope, _uid(request))

    async def _show_secret(self, request: UserRequest, receiver: Receiver, secret: str) -> web.StreamResponse:
        """Show the secret on the next page; it never appears in a URL."""
        await self._sessions.show_next(request.session, {"receiver": str(receiver.uid), "secret": secret})
        return see_other(RECEIVERS + "/made")

    def _render(self, request: UserRequest, receiver: Receiver, mistake: str = "") -> web.Response:
        return request.render(
            "receivers/receiver.html",
            receiver=receiver,
            state=state_of(receiver),
            tenants_of=_tenant_names(request),
            mistake=mistake,
        )

    def _render_form(self, request: UserRequest, given: Mapping[str, object], mistake: str = "") -> web.Response:
        whole = request.scope.tenants is None
        bounds = [("", _("Choose …"))]
        bounds += [(GLOBAL, _("Every tenant and the deployment"))] if whole else []
        bounds += [(str(tenant.uid), tenant.name) for tenant in request.tenants]
        return request.render(
            "receivers/new.html",
            given=given,
            bounds=bounds,
            many=len(bounds) > MAX_TENANT_MENU,
            kinds=KINDS if whole else KINDS[:1],
            formats=FORMATS,
            types=TYPES,
            mistake=mistake,
        )


def state_of(receiver: Receiver) -> str:
    """Return the state of a receiver for its badge."""
    if receiver.is_paused:
        return "paused"
    if receiver.state is State.DISABLED:
        return "disabled"
    return "active" if receiver.failing_since is None else "failing"


def _uid(request: UserRequest) -> UUID:
    return read_uid(request.variables["receiver"])


def _read(request: UserRequest, given: Mapping[str, str], types: Sequence[str]) -> NewReceiver:
    """Return the receiver of the form; the service checks the rest."""
    if not given["bound"]:
        raise SchemaViolation("Choose whose events the receiver gets.")
    whole = given["bound"] == GLOBAL and request.scope.tenants is None
    return NewReceiver(
        name=given["name"],
        kind=_member(Kind, given["kind"] or Kind.WEBHOOK),
        url=given["target"],
        format=_member(Format, given["format"] or Format.NATIVE),
        types=frozenset(types) or None,
        tenants=None if whole else frozenset({tenant_uid_of(request, given["bound"])}),
        batch_size=_number(given["batch"] or "1"),
        batch_seconds=_number(given["seconds"] or "0"),
    )


def _member(kind: Callable[[str], T], text: str) -> T:
    try:
        return kind(text)
    except ValueError:
        raise SchemaViolation("Choose a value of the menu.") from None


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise SchemaViolation("The batch is a number of events and a number of seconds.")
    return int(text)


def _tenant_names(request: UserRequest) -> Callable[[Receiver], str]:
    """Return a function that names the tenants of a receiver, sorted."""

    def names(receiver: Receiver) -> str:
        if receiver.tenants is None:
            return _("every tenant and the deployment")
        return ", ".join(sorted((request.tenant_name(uid) for uid in receiver.tenants), key=str.lower))

    return names
