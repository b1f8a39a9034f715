"""The People screen: console users, invitations, roles, and disabled users."""

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

PEOPLE = "/console/people"
ALL, CHOSEN = "all", "chosen"  # the choice of tenants in the form
_FORM_ERRORS = (SchemaViolation, Forbidden, TenantNotFound, LastAdministrator)
ROLE_HINTS: Mapping[str, str] = {
    Role.DEPLOYMENT_ADMINISTRATOR: N_("Everything, in every tenant."),
    Role.TENANT_ADMINISTRATOR: N_("Lists, keys and people of their tenants."),
    Role.ANALYST: N_("Reads messages and changes lists."),
    Role.AUDITOR: N_("Reads everything including the audit log, changes nothing."),
}


class PeopleScreen:
    def __init__(self, administration: UserAdministration, visitors: VisitorSessions) -> None:
        self._administration = administration
        self._visitors = visitors
        self._sessions = visitors.registry.sessions

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/people", Permission.PEOPLE_READ, self.show),
            Page("GET", "/people/new", Permission.PEOPLE_WRITE, self.show_form),
            Page("POST", "/people/new", Permission.PEOPLE_WRITE, self.invite),
            Page("GET", "/people/link", Permission.PEOPLE_WRITE, self.show_link),
            Page("GET", "/people/{person}", Permission.PEOPLE_READ, self.show_person),
            Page("POST", "/people/{person}/role", Permission.PEOPLE_WRITE, self.move),
            Page("POST", "/people/{person}/link", Permission.PEOPLE_WRITE, self.renew),
            Page("POST", "/people/{person}/disable", Permission.PEOPLE_WRITE, self.disable),
            Page("POST", "/people/{person}/enable", Permission.PEOPLE_WRITE, self.enable),
            Page("POST", "/people/links/{link}/withdraw", Permission.PEOPLE_WRITE, self.withdraw),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        return request.render(
            "people/index.html",
            people=await self._administration.list(request.scope),
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
        return request.render("people/link.html", link=shown.get("link", ""), whom=shown.get("whom", ""))

    async def show_person(self, request: UserRequest) -> web.StreamResponse:
        return self._render_person(request, await self._person(request))

    async def move(self, request: UserRequest) -> web.StreamResponse:
        person = await self._person(request)
        try:
            await self._administration.move(request.scope, person.uid, _position(request), request.actor)
        except _FORM_ERRORS as error:
            return with_error_status(self._render_person(request, person, error.message), error)
        return see_other(f"{PEOPLE}/{person.uid}", "person-moved")

    async def renew(self, request: UserRequest) -> web.StreamResponse:
        person = await self._person(request)
        token = await self._administration.renew(request.scope, person.uid, request.actor)
        return await self._show_once(request, token, person.name)

    async def disable(self, request: UserRequest) -> web.StreamResponse:
        person = await self._person(request)
        try:
            await self._administration.disable(request.scope, person.uid, request.actor)
        except LastAdministrator as error:
            return with_error_status(self._render_person(request, person, error.message), error)
        return see_other(f"{PEOPLE}/{person.uid}", "person-disabled")

    async def enable(self, request: UserRequest) -> web.StreamResponse:
        person = await self._person(request)
        await self._administration.disable(request.scope, person.uid, request.actor, disabled=False)
        return see_other(f"{PEOPLE}/{person.uid}", "person-enabled")

    async def withdraw(self, request: UserRequest) -> web.StreamResponse:
        if not await self._administration.withdraw(request.scope, read_uid(request.variables["link"]), request.actor):
            raise NotFound("There is no such link.")
        return see_other(PEOPLE, "link-withdrawn")

    async def _person(self, request: UserRequest) -> User:
        return await self._administration.find(request.scope, read_uid(request.variables["person"]))

    async def _show_once(self, request: UserRequest, token: str, whom: str) -> web.StreamResponse:
        link = f"{self._visitors.origin(request.call).site}{PREFIX}/setup/{token}"
        await self._sessions.show_next(request.session, {"link": link, "whom": whom})
        return see_other(PEOPLE + "/link")

    def _render_form(self, request: UserRequest, given: Mapping[str, object], mistake: str = "") -> web.Response:
        shown = {"roles": _roles(request), "hints": ROLE_HINTS, "few": MAX_TENANT_MENU}
        return request.render("people/new.html", shown, given=given, mistake=mistake)

    def _render_person(self, request: UserRequest, person: User, mistake: str = "") -> web.Response:
        tenants_of = tenant_names(request)
        given = {
            "role": person.role.value,
            "reach": CHOSEN if person.tenants else ALL,
            "tenants": [str(uid) for uid in person.tenants],
            "tenant_names": "\n".join(tenants_of([uid]) for uid in person.tenants),
        }
        return request.render(
            "people/person.html",
            person=person,
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
