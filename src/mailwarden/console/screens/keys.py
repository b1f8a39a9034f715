"""The API keys screen: creates keys and shows each once, rotates and revokes them, and lists the static tokens."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from uuid import UUID

from aiohttp import web

from mailwarden.access.keys import ApiKey, ApiKeys, Network, NewKey
from mailwarden.access.permissions import KeyScope
from mailwarden.access.sessions import Sessions
from mailwarden.console.auth import Page, VisitorSessions
from mailwarden.console.language import N_, _
from mailwarden.console.permissions import Permission
from mailwarden.console.request import GLOBAL, UserRequest, see_other, with_error_status
from mailwarden.console.samples import SampleName, recipient_of, sample_curl
from mailwarden.console.services import Deployment
from mailwarden.console.templating import HEADERS
from mailwarden.errors import CommandError, KeyNotFound, SchemaViolation, TenantNotFound

KEYS = "/console/keys"
MAX_TENANT_MENU = 100  # tenants in one menu; with more, a name is typed
LIFETIMES = (
    ("30", N_("30 days")),
    ("90", N_("90 days")),
    ("180", N_("180 days")),
    ("365", N_("1 year")),
    ("", N_("never")),
)
OVERLAPS = (
    ("0", N_("No overlap: the old key ends now")),
    ("1", N_("1 hour")),
    ("24", N_("1 day")),
    ("168", N_("7 days")),
    ("720", N_("30 days")),
)
# Every scope with its sentence, by the thing that it is about.
SCOPES: Mapping[str, Sequence[tuple[KeyScope, str]]] = {
    N_("Messages"): (
        (KeyScope.SUBMIT, N_("Submit messages and receive the decision.")),
        (KeyScope.MESSAGES, N_("Read why a message has its verdict.")),
        (KeyScope.REPORTS, N_("Report messages, undo reports, and reset the training of a tenant.")),
    ),
    N_("Quarantine"): (
        (KeyScope.HELD, N_("See held messages and their recipients.")),
        (KeyScope.RELEASE, N_("Download, release and delete held messages.")),
    ),
    N_("Lists"): (
        (KeyScope.READ, N_("Read lists and their entries.")),
        (KeyScope.WRITE, N_("Add and delete entries.")),
    ),
    N_("Operation"): (
        (KeyScope.STATUS, N_("Read the status colour of the deployment.")),
        (KeyScope.EVENTS, N_("Read events.")),
    ),
}

USABLE = ("valid", "expiring")  # the states of a key that is accepted
_NO_ENTRIES: Mapping[str, object] = {"listName": "sender-block", "entries": []}
SENTENCES: Mapping[str, str] = {scope: sentence for group in SCOPES.values() for scope, sentence in group}


class KeysScreen:
    def __init__(self, keys: ApiKeys, visitors: VisitorSessions, deployment: Deployment) -> None:
        self._keys = keys
        self._visitors = visitors
        self._deployment = deployment

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/keys", Permission.KEYS_READ, self.show),
            Page("GET", "/keys/new", Permission.KEYS_WRITE, self.show_form),
            Page("POST", "/keys/new", Permission.KEYS_WRITE, self.create),
            Page("GET", "/keys/made", Permission.KEYS_WRITE, self.show_made),
            Page("GET", "/keys/{key}", Permission.KEYS_READ, self.show_key),
            Page("GET", "/keys/{key}/first", Permission.KEYS_READ, self.show_first_request, quiet=True),
            Page("GET", "/keys/{key}/rotate", Permission.KEYS_WRITE, self.show_rotation),
            Page("POST", "/keys/{key}/rotate", Permission.KEYS_WRITE, self.rotate),
            Page("GET", "/keys/{key}/revoke", Permission.KEYS_WRITE, self.show_revocation),
            Page("POST", "/keys/{key}/revoke", Permission.KEYS_WRITE, self.revoke),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        now = datetime.now(UTC)
        keys = sorted(await self._keys.list(request.scope), key=lambda key: (not key.is_valid(now), key.name.lower()))
        # Static tokens belong to the deployment, so users of tenants do not see them.
        tokens = self._deployment.tokens() if request.scope.tenants is None else None
        rows = [(key, state_of(key, now)) for key in keys]
        return request.render("keys/index.html", keys=rows, tokens=tokens, tenants_of=tenant_names(request))

    async def show_form(self, request: UserRequest) -> web.StreamResponse:
        return self._render_form(request, {"lifetime": "365"})

    async def create(self, request: UserRequest) -> web.StreamResponse:
        form = request.form
        given = {
            "name": form.text("name"),
            "scopes": form.many("scopes"),
            "bound": form.text("bound"),
            "lifetime": form.text("lifetime"),
            "networks": form.raw("networks"),
        }
        try:
            wanted = NewKey(
                form.text("name"),
                _scopes(form.many("scopes")),
                _bound(request, form.text("bound")),
                _networks(form.raw("networks")),
                _expiry(form.text("lifetime")),
            )
            key, text = await self._keys.create(request.scope, wanted, request.actor)
        except (SchemaViolation, CommandError, TenantNotFound) as error:
            return with_error_status(self._render_form(request, given, error.message), error)
        return await show_secret(self._visitors.registry.sessions, request, key, text)

    async def show_made(self, request: UserRequest) -> web.StreamResponse:
        """Show the new key once; a reload shows that it is gone."""
        shown = await self._visitors.registry.sessions.take_shown(request.session, "key")
        if not shown:
            return request.render("keys/made.html", key=None, state="", text="", curl="")
        key = await self._keys.find(request.scope, shown["id"])
        tenant = next((each for each in request.tenants if not key.is_global and each.uid == min(key.tenants)), None)
        recipient = recipient_of(tenant, request.user)
        curl = curl_of(self._visitors.origin(request.call).site, key, shown["key"], recipient)
        state = state_of(key, datetime.now(UTC))
        return request.render("keys/made.html", key=key, state=state, text=shown["key"], curl=curl)

    async def show_key(self, request: UserRequest) -> web.StreamResponse:
        key = await self._keys.find(request.scope, request.variables["key"])
        state = state_of(key, datetime.now(UTC))
        return request.render(
            "keys/key.html", key=key, state=state, tenants_of=tenant_names(request), sentences=SENTENCES
        )

    async def show_first_request(self, request: UserRequest) -> web.StreamResponse:
        """Return the fragment that an open page polls; while a key waits for its first request, nothing changes."""
        key = await self._keys.find(request.scope, request.variables["key"])
        state = state_of(key, datetime.now(UTC))
        if key.last_used is None and state in USABLE:
            return web.Response(status=204, headers=HEADERS)
        return request.render("keys/first.html", key=key, state=state)

    async def show_rotation(self, request: UserRequest) -> web.StreamResponse:
        return request.render("keys/rotate.html", key=await self._valid(request), overlaps=OVERLAPS)

    async def rotate(self, request: UserRequest) -> web.StreamResponse:
        hours = request.form.text("overlap")
        if hours not in dict(OVERLAPS):
            raise SchemaViolation("Choose how long the old key stays valid.")
        key_id = request.variables["key"]
        key, text = await self._keys.rotate(request.scope, key_id, timedelta(hours=int(hours)), request.actor)
        return await show_secret(self._visitors.registry.sessions, request, key, text)

    async def show_revocation(self, request: UserRequest) -> web.StreamResponse:
        return request.render("keys/revoke.html", key=await self._valid(request))

    async def revoke(self, request: UserRequest) -> web.StreamResponse:
        if not await self._keys.revoke(request.scope, request.variables["key"], request.actor):
            raise KeyNotFound("There is no valid key with this id.")
        return see_other(KEYS, "key-revoked")

    async def _valid(self, request: UserRequest) -> ApiKey:
        key = await self._keys.find(request.scope, request.variables["key"])
        if not key.is_valid(datetime.now(UTC)):
            raise KeyNotFound("This key has expired or was revoked.")
        return key

    def _render_form(self, request: UserRequest, given: Mapping[str, object], mistake: str = "") -> web.Response:
        bounds = [("", _("Choose …"))]
        bounds += [(GLOBAL, _("Every tenant and the global scope"))] if request.scope.tenants is None else []
        bounds += [(str(tenant.uid), tenant.name) for tenant in request.tenants]
        return request.render(
            "keys/new.html",
            given=given,
            bounds=bounds,
            many=len(bounds) > MAX_TENANT_MENU,
            lifetimes=LIFETIMES,
            scopes=SCOPES,
            mistake=mistake,
        )


def curl_of(site: str, key: ApiKey, text: str, recipient: str) -> str:
    """Return a curl command for the first scope that has a call which changes nothing, or an empty string."""
    head, tenant = f"curl -H 'Authorization: apikey {text}' \\\n  ", None if key.is_global else min(key.tenants)
    if key.may(KeyScope.SUBMIT):
        return sample_curl(site, text, SampleName.HARMLESS, recipient, tenant)
    if key.may(KeyScope.READ) or key.may(KeyScope.WRITE):
        call, rest = ("getLists", {}) if key.may(KeyScope.READ) else ("addEntries", _NO_ENTRIES)
        body = json.dumps({**({"tenantUid": str(tenant)} if tenant else {}), **rest})
        return f"{head}-H 'Content-Type: application/json' -d '{body}' \\\n  {site}/api/public/lists/v1/{call}"
    if key.may(KeyScope.STATUS):
        return f"{head}-X POST {site}/v1/admin/status"
    if key.may(KeyScope.HELD):
        return f"{head}'{site}/v1/quarantine?limit=1'"
    if key.may(KeyScope.REPORTS) and tenant:
        return f"{head}'{site}/v1/training?tenantUid={tenant}'"
    return ""


async def show_secret(sessions: Sessions, request: UserRequest, key: ApiKey, text: str) -> web.StreamResponse:
    """Show the key's text on the next page; it never appears in a URL."""
    await sessions.show_next(request.session, {"id": key.key_id, "key": text})
    return see_other(KEYS + "/made")


def state_of(key: ApiKey, now: datetime) -> str:
    """Return the state of a key for its badge."""
    if key.revoked is not None:
        return "revoked"
    if not key.is_valid(now):
        return "expired"
    return "expiring" if key.replaced_by is not None else "valid"


def tenant_names(request: UserRequest) -> Callable[[Iterable[UUID]], str]:
    """Return a function that joins the names of tenants, sorted."""
    names = {tenant.uid: tenant.name for tenant in request.tenants}
    return lambda uids: ", ".join(sorted((names.get(uid, str(uid)) for uid in uids), key=str.lower))


def tenant_uid_of(request: UserRequest, text: str) -> UUID:
    """Return the UUID of a visible tenant by its name or UUID."""
    wanted = text.strip().lower()
    for tenant in request.tenants:
        if wanted in (str(tenant.uid), tenant.name.lower()):
            return tenant.uid
    raise SchemaViolation(f"There is no tenant `{text.strip()[:100]}`.")


def _scopes(given: Sequence[str]) -> frozenset[KeyScope]:
    try:
        return frozenset(map(KeyScope, given))
    except ValueError:
        raise SchemaViolation("There is no such scope.") from None


def _bound(request: UserRequest, given: str) -> frozenset[UUID]:
    if given == GLOBAL and request.scope.tenants is None:
        return frozenset()
    if not given:
        raise SchemaViolation("Choose what the key is bound to.")
    return frozenset({tenant_uid_of(request, given)})


def _networks(text: str) -> tuple[Network, ...]:
    found: list[Network] = []
    for line in text.replace(",", "\n").split():
        try:
            found.append(ip_network(line))
        except ValueError:
            raise SchemaViolation(f"`{line[:60]}` is no network: write 192.0.2.0/24 or 2001:db8::/32.") from None
    return tuple(found)


def _expiry(days: str) -> datetime | None:
    if days not in dict(LIFETIMES):
        raise SchemaViolation("Choose when the key expires.")
    return datetime.now(UTC) + timedelta(days=int(days)) if days else None
