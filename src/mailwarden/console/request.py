"""One request to the console: the user, the visible tenants, and the response."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlencode
from uuid import UUID

from aiohttp import web
from msgspec import Struct

from mailwarden.access.sessions import Session
from mailwarden.access.tenants import TenantDirectory
from mailwarden.access.users import User
from mailwarden.console.forms import Form
from mailwarden.console.language import N_, sentence_text
from mailwarden.console.permissions import Permission, may
from mailwarden.console.templating import HEADERS, Templates
from mailwarden.console.texts import DONE, NOTICES
from mailwarden.errors import MailwardenError, NotFound, SchemaViolation
from mailwarden.lists.store import ListScope
from mailwarden.message.preview import HEADERS as PREVIEW_HEADERS
from mailwarden.model.scope import Actor, Scope
from mailwarden.model.tenant import Tenant
from mailwarden.serving.errors import STATUS_OF
from mailwarden.serving.http_app import Call, finish_headers

GLOBAL = "global"
PANE = "pane"  # the id of the pane in messages/index.html
TENANT_COOKIE = "__Host-mailwarden-tenant"  # the tenant that a user has switched to
NOTHING: Mapping[str, object] = {}


class Entry(Struct, frozen=True):
    title: str
    path: str
    permission: Permission
    icon: str
    is_current: bool = False


MENU: tuple[Entry, ...] = (
    Entry(N_("Dashboard"), "/console/", Permission.OVERVIEW, "dashboard"),
    Entry(N_("Messages"), "/console/messages", Permission.MESSAGES, "messages"),
    Entry(N_("Quarantine"), "/console/quarantine", Permission.QUARANTINE_READ, "quarantine"),
    Entry(N_("Cases"), "/console/cases", Permission.TRAINING_READ, "cases"),
    Entry(N_("Analyze"), "/console/analyze", Permission.ANALYZE, "analyze"),
    Entry(N_("Lists"), "/console/lists", Permission.LISTS_READ, "lists"),
    Entry(N_("Training"), "/console/training", Permission.TRAINING_READ, "training"),
    Entry(N_("Reports"), "/console/reports", Permission.REPORTS_READ, "reports"),
    Entry(N_("API keys"), "/console/keys", Permission.KEYS_READ, "keys"),
    Entry(N_("Users"), "/console/users", Permission.USERS_READ, "users"),
    Entry(N_("Tenants"), "/console/tenants", Permission.TENANTS_READ, "tenants"),
    Entry(N_("Event receivers"), "/console/receivers", Permission.RECEIVERS_READ, "events"),
    Entry(N_("Audit"), "/console/audit", Permission.AUDIT, "audit"),
    Entry(N_("Health"), "/console/health", Permission.HEALTH, "health"),
)


def entries_for(may: Callable[[Permission], bool], path: str) -> Sequence[Entry]:
    """Return the menu entries that a user may open, with the current one marked."""
    return [
        Entry(each.title, each.path, each.permission, each.icon, is_current=_is_at(path, each.path))
        for each in MENU
        if may(each.permission)
    ]


def _is_at(path: str, entry: str) -> bool:
    return path == entry or (not entry.endswith("/") and path.startswith(entry + "/"))


@dataclass(frozen=True, slots=True)
class VisitorRequest:
    """A request without a login."""

    call: Call
    form: Form
    templates: Templates

    @property
    def query(self) -> Mapping[str, str]:
        return self.call.request.query

    @property
    def variables(self) -> Mapping[str, str]:
        return self.call.variables

    def render(
        self, template: str, values: Mapping[str, object] = NOTHING, /, *, status: int = 200, **more: object
    ) -> web.Response:
        """Return the rendered page; templates always get `request` and `notice`."""
        given = {"request": self, "notice": notice_of(self.query), **values, **more}
        return self.templates.response(template, given, status)


@dataclass(frozen=True, slots=True)
class UserRequest:
    """A request of a signed-in user."""

    call: Call
    user: User
    session: Session
    form: Form
    templates: Templates
    directory: TenantDirectory

    @property
    def scope(self) -> Scope:
        return self.user.scope

    @property
    def actor(self) -> Actor:
        return Actor(f"user:{self.user.name}", self.call.address, self.call.request_id)

    @property
    def query(self) -> Mapping[str, str]:
        return self.call.request.query

    @property
    def variables(self) -> Mapping[str, str]:
        return self.call.variables

    @property
    def csrf(self) -> str:
        return self.session.csrf

    @property
    def is_htmx(self) -> bool:
        """Whether htmx requests a fragment instead of a whole page."""
        headers = self.call.request.headers
        return headers.get("HX-Request") == "true" and headers.get("HX-History-Restore-Request") != "true"

    @property
    def layout(self) -> str:
        """The template around a page: the whole window, or the pane beside the list of messages."""
        in_pane = self.is_htmx and self.call.request.headers.get("HX-Target") == PANE
        return "pane.html" if in_pane else "layout.html"

    @property
    def navigation(self) -> Sequence[Entry]:
        return entries_for(self.may, self.call.request.path)

    @property
    def tenants(self) -> Sequence[Tenant]:
        """The tenants that this user may see, sorted by name."""
        return self.directory.known(self.scope)

    @property
    def active_tenant(self) -> Tenant | None:
        """The tenant that the user has switched to; None means all tenants.

        The cookie is a choice and no right: a tenant that the user may not see is no choice.
        """
        wanted = self.call.request.cookies.get(TENANT_COOKIE, "")
        if not wanted:
            return None
        tenants = self.tenants
        return next((tenant for tenant in tenants if str(tenant.uid) == wanted), None) if len(tenants) > 1 else None

    @property
    def view(self) -> Scope:
        """The scope of lists and figures: the active tenant, or all tenants of the user.

        Pages of one object use `scope`: a link to an object of another tenant works.
        """
        active = self.active_tenant
        return self.scope if active is None else self.scope.narrowed(active.uid)

    @property
    def current_menu_path(self) -> str:
        """The path of the menu entry that this page belongs to, or the dashboard."""
        return next((each.path for each in self.navigation if each.is_current), MENU[0].path)

    def may(self, permission: Permission | str) -> bool:
        return may(self.user.role, Permission(permission), whole_deployment=self.scope.tenants is None)

    def tenant_name(self, uid: UUID | None) -> str:
        """Return the name of a tenant, or its UUID if this user may not see it."""
        if uid is None:
            return GLOBAL
        return next((tenant.name for tenant in self.tenants if tenant.uid == uid), str(uid))

    def list_scope(self, text: str | None = None) -> ListScope:
        """Return the list scope that the URL names, or that of the active tenant, or the user's first one.

        A scope that the user may not see raises NotFound.
        """
        given = self.query.get("scope", "") if text is None else text
        if not given and (active := self.active_tenant):
            return ListScope(active.uid)
        if not given:
            return ListScope() if self.scope.tenants is None else ListScope(_first(self.tenants))
        if given == GLOBAL:
            if self.scope.tenants is not None:
                raise NotFound("There is no such scope.")
            return ListScope()
        try:
            tenant = UUID(given)
        except ValueError:
            raise SchemaViolation("A scope is `global` or the uid of a tenant.") from None
        if all(known.uid != tenant for known in self.tenants):
            raise NotFound("There is no such scope.")
        return ListScope(tenant)

    def render(
        self, template: str, values: Mapping[str, object] = NOTHING, /, *, status: int = 200, **more: object
    ) -> web.Response:
        """Return the rendered page or fragment; templates always get `request` and `notice`."""
        return self.templates.response(template, self.values(**values, **more), status)

    def values(self, **values: object) -> dict[str, object]:
        """Return the values that every template gets."""
        return {"request": self, "notice": notice_of(self.query), **values}

    async def begin_stream(
        self, media_type: str = "text/html", charset: str | None = "utf-8", **headers: str
    ) -> web.StreamResponse:
        """Start a response that is written in pieces."""
        response = web.StreamResponse(headers={**HEADERS, **headers})
        response.content_type = media_type
        if charset is not None:
            response.charset = charset
        finish_headers(response, self.call.request_id, self.call.request.path, self.call.headers)
        await response.prepare(self.call.request)
        return response


def preview_response(document: str) -> web.Response:
    """Return a safe preview, with its own Content-Security-Policy."""
    return web.Response(text=document, headers=PREVIEW_HEADERS)


def see_other(path: str, done: str = "", **query: str) -> web.Response:
    """Redirect to a page after an action; `done` is a code of NOTICES."""
    given = {name: value for name, value in query.items() if value}
    if done:
        given[DONE] = done
    address = f"{path}{'&' if '?' in path else '?'}{urlencode(given)}" if given else path
    return web.Response(status=303, headers={**HEADERS, "Location": address})


def notice_of(query: Mapping[str, str]) -> str:
    """Return the notice that the URL names, or an empty string."""
    return sentence_text(NOTICES.get(query.get(DONE, ""), ""))


def _first(tenants: Sequence[Tenant]) -> UUID:
    if not tenants:
        raise NotFound("You have no tenant any more: ask an administrator.")
    return tenants[0].uid


def with_error_status(response: web.Response, error: MailwardenError) -> web.Response:
    """Return the page with the HTTP status of a form error."""
    response.set_status(STATUS_OF.get(type(error), HTTPStatus.BAD_REQUEST))
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response


def read_uid(text: str) -> UUID:
    """Return the UUID in a URL, or raise NotFound."""
    try:
        return UUID(text)
    except ValueError:
        raise NotFound("There is nothing at this path.") from None
