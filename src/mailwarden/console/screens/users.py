"""The Users screen: console users, invitations, roles, and disabled users."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from aiohttp import web

from mailwarden.access.accounts import UserAdministration
from mailwarden.access.users import Position, Role, User
from mailwarden.console.auth import PREFIX, Page, VisitorSessions
from mailwarden.console.language import N_
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, read_uid, see_other, with_error_status
from mailwarden.console.screens.keys import MAX_TENANT_MENU, tenant_names, tenant_uid_of
from mailwarden.console.texts import ROLES
from mailwarden.errors import Forbidden, LastAdministrator, NotFound, SchemaViolation, TenantNotFound

USERS = "/console/users"
ALL, CHOSEN = "all", "chosen"  # the choice of tenants in the form
_FORM_ERRORS = (SchemaViolation, Forbidden, TenantNotFound, LastAdministrator)
ROLE_HINTS: Mapping[str, str] = {
    Role.DEPLOYMENT_ADMINISTRATOR: N_("Everything, in every tenant."),
    Role.TENANT_ADMINISTRATOR: N_("Lists, keys and users of their tenants."),
    Role.ANALYST: N_("Reads messages and changes lists."),
    Role.AUDITOR: N_("Reads everything including the audit log, changes nothing."),
}


class UsersScreen:
    def __init__(self, administration: UserAdministration, visitors: VisitorSessions) -> None:
        self._administration = administration
        self._visitors = visitors
        self._sessions = visitors.registry.sessions

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/users", Permission.USERS_READ, self.show),
            Page("GET", "/users/new", Permission.USERS_WRITE, self.show_form),
            Page("POST", "/users/new", Permission.USERS_WRITE, self.invite),
            Page("GET", "/users/link", Permission.USERS_WRITE, self.show_link),
            Page("GET", "/users/{user}", Permission.USERS_READ, self.show_user),
            Page("POST", "/users/{user}/role", Permission.USERS_WRITE, self.move),
            Page("POST", "/users/{user}/link", Permission.USERS_WRITE, self.renew),
            Page("POST", "/users/{user}/disable", Permission.USERS_WRITE, self.disable),
            Page("POST", "/users/{user}/enable", Permission.USERS_WRITE, self.enable),
            Page("POST", "/users/links/{link}/withdraw", Permission.USERS_WRITE, self.withdraw),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        return request.render(
            "users/index.html",
            users=await self._administration.list(request.scope),
            links=await self._administration.links(request.scope),
            tenants_of=tenant_names(request),
        )

    async def show_form(self, request: UserRequest) -> web.StreamResponse:
        return self._render_form(request, {})

    async def invite(self, request: UserRequest) -> web.StreamResponse:
        form = request.form
        given = {
            "role": form.text("role"),
            "reach": form.text("reach"),
            "tenants": form.many("tenants"),
            "tenant_names": form.raw("tenant_names"),
            "email": form.text("email"),
        }
        try:
            position = _position(request)
            token = await self._administration.invite(request.scope, position, form.text("email"), request.actor)
        except _FORM_ERRORS as error:
            return with_error_status(self._render_form(request, given, error.message), error)
        return await self._show_once(request, token, form.text("email"))

    async def show_link(self, request: UserRequest) -> web.StreamResponse:
        """Show the new link once; a reload shows that it is gone."""
        shown = await self._sessions.take_shown(request.session, "link")
        return request.render("users/link.html", link=shown.get("link", ""), whom=shown.get("whom", ""))

    async def show_user(self, request: UserRequest) -> web.StreamResponse:
        return self._render_user(request, await self._user(request))

    async def move(self, request: UserRequest) -> web.StreamResponse:
        user = await self._user(request)
        try:
            await self._administration.move(request.scope, user.uid, _position(request), request.actor)
        except _FORM_ERRORS as error:
            return with_error_status(self._render_user(request, user, error.message), error)
        return see_other(f"{USERS}/{user.uid}", "user-moved")

    async def renew(self, request: UserRequest) -> web.StreamResponse:
        user = await self._user(request)
        token = await self._administration.renew(request.scope, user.uid, request.actor)
        return await self._show_once(request, token, user.name)

    async def disable(self, request: UserRequest) -> web.StreamResponse:
        user = await self._user(request)
        try:
            await self._administration.disable(request.scope, user.uid, request.actor)
        except LastAdministrator as error:
            return with_error_status(self._render_user(request, user, error.message), error)
        return see_other(f"{USERS}/{user.uid}", "user-disabled")

    async def enable(self, request: UserRequest) -> web.StreamResponse:
        user = await self._user(request)
        await self._administration.disable(request.scope, user.uid, request.actor, disabled=False)
        return see_other(f"{USERS}/{user.uid}", "user-enabled")

    async def withdraw(self, request: UserRequest) -> web.StreamResponse:
        if not await self._administration.withdraw(request.scope, read_uid(request.variables["link"]), request.actor):
            raise NotFound("There is no such link.")
        return see_other(USERS, "link-withdrawn")

    async def _user(self, request: UserRequest) -> User:
        return await self._administration.find(request.scope, read_uid(request.variables["user"]))

    async def _show_once(self, request: UserRequest, token: str, whom: str) -> web.StreamResponse:
        link = f"{self._visitors.origin(request.call).site}{PREFIX}/setup/{token}"
        await self._sessions.show_next(request.session, {"link": link, "whom": whom})
        return see_other(USERS + "/link")

    def _render_form(self, request: UserRequest, given: Mapping[str, object], mistake: str = "") -> web.Response:
        shown = {"roles": _roles(request), "hints": ROLE_HINTS, "few": MAX_TENANT_MENU}
        return request.render("users/new.html", shown, given=given, mistake=mistake)

    def _render_user(self, request: UserRequest, user: User, mistake: str = "") -> web.Response:
        tenants_of = tenant_names(request)
        given = {
            "role": user.role.value,
            "reach": CHOSEN if user.tenants else ALL,
            "tenants": [str(uid) for uid in user.tenants],
            "tenant_names": "\n".join(tenants_of([uid]) for uid in user.tenants),
        }
        return request.render(
            "users/user.html",
            user=user,
            tenants_of=tenants_of,
            few=MAX_TENANT_MENU,
            given=given,
            roles=_roles(request),
            hints=ROLE_HINTS,
            mistake=mistake,
        )


def _roles(request: UserRequest) -> Sequence[tuple[str, str]]:
    """Return the roles that this user may assign."""
    whole = request.scope.tenants is None
    return [(role, ROLES[role]) for role in Role if whole or role is not Role.DEPLOYMENT_ADMINISTRATOR]


def _position(request: UserRequest) -> Position:
    """Return the role and tenants of the form; both must be chosen, none is assumed."""
    form = request.form
    try:
        role = Role(form.text("role"))
        tenants = frozenset(UUID(text) for text in form.many("tenants"))
    except ValueError:
        raise SchemaViolation("Choose a role.") from None
    tenants |= {tenant_uid_of(request, line) for line in form.raw("tenant_names").splitlines() if line.strip()}
    if form.text("reach") == ALL:
        if tenants:
            raise SchemaViolation("Choose either all tenants or some of them.")
        return Position(role, frozenset())
    if role is Role.DEPLOYMENT_ADMINISTRATOR:
        raise SchemaViolation("A deployment administrator has all tenants. Choose all tenants, or another role.")
    if not tenants:
        raise SchemaViolation("Choose all tenants, or at least one.")
    return Position(role, tenants)
