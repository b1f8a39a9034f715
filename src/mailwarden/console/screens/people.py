"""People: who may use the console, invitations by a link that is shown once, roles, and who is shut out."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from aiohttp import web

from mailwarden.access.administration import Administration
from mailwarden.access.people import Position, Role, User
from mailwarden.console.auth import PREFIX, Page
from mailwarden.console.permissions import Right
from mailwarden.console.request import Visit, read_uid, see_other, told
from mailwarden.console.screens.keys import FEW_TENANTS, named_tenant, tenant_namer
from mailwarden.console.texts import ROLES
from mailwarden.console.visitor_session import Reception
from mailwarden.errors import Forbidden, LastAdministrator, NotFound, SchemaViolation, TenantNotFound

PEOPLE = "/console/people"
_MISTAKES = (SchemaViolation, Forbidden, TenantNotFound, LastAdministrator)
ROLE_HINTS: Mapping[str, str] = {
    Role.DEPLOYMENT_ADMINISTRATOR: "Everything, in every tenant.",
    Role.TENANT_ADMINISTRATOR: "Lists, keys and people of their tenants.",
    Role.ANALYST: "Reads messages and changes lists.",
    Role.AUDITOR: "Reads everything, the audit among it, and changes nothing.",
}


class PeopleScreen:
    def __init__(self, administration: Administration, reception: Reception) -> None:
        self._administration = administration
        self._reception = reception
        self._sessions = reception.registry.sessions

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/people", Right.PEOPLE_READ, self.show),
            Page("GET", "/people/new", Right.PEOPLE_WRITE, self.show_form),
            Page("POST", "/people/new", Right.PEOPLE_WRITE, self.invite),
            Page("GET", "/people/link", Right.PEOPLE_WRITE, self.show_link),
            Page("GET", "/people/{person}", Right.PEOPLE_READ, self.show_person),
            Page("POST", "/people/{person}/role", Right.PEOPLE_WRITE, self.move),
            Page("POST", "/people/{person}/link", Right.PEOPLE_WRITE, self.renew),
            Page("POST", "/people/{person}/disable", Right.PEOPLE_WRITE, self.disable),
            Page("POST", "/people/{person}/enable", Right.PEOPLE_WRITE, self.enable),
            Page("POST", "/people/links/{link}/withdraw", Right.PEOPLE_WRITE, self.withdraw),
        ]

    async def show(self, visit: Visit) -> web.StreamResponse:
        return visit.render(
            "people/index.html",
            people=await self._administration.list(visit.scope),
            links=await self._administration.links(visit.scope),
            tenants_of=tenant_namer(visit),
        )

    async def show_form(self, visit: Visit) -> web.StreamResponse:
        return self._render_form(visit, {"role": Role.ANALYST.value})

    async def invite(self, visit: Visit) -> web.StreamResponse:
        form = visit.form
        given = {
            "role": form.text("role"),
            "tenants": form.many("tenants"),
            "tenant_names": form.raw("tenant_names"),
            "email": form.text("email"),
        }
        try:
            position = _position(visit)
            token = await self._administration.invite(visit.scope, position, form.text("email"), visit.actor)
        except _MISTAKES as error:
            return told(self._render_form(visit, given, error.message), error)
        return await self._show_once(visit, token, form.text("email"))

    async def show_link(self, visit: Visit) -> web.StreamResponse:
        """Show the link that was just made; whoever comes again finds it gone."""
        shown = await self._sessions.take_shown(visit.session, "link")
        return visit.render("people/link.html", link=shown.get("link", ""), whom=shown.get("whom", ""))

    async def show_person(self, visit: Visit) -> web.StreamResponse:
        return self._render_person(visit, await self._person(visit))

    async def move(self, visit: Visit) -> web.StreamResponse:
        person = await self._person(visit)
        try:
            await self._administration.move(visit.scope, person.uid, _position(visit), visit.actor)
        except _MISTAKES as error:
            return told(self._render_person(visit, person, error.message), error)
        return see_other(f"{PEOPLE}/{person.uid}", "person-moved")

    async def renew(self, visit: Visit) -> web.StreamResponse:
        person = await self._person(visit)
        token = await self._administration.renew(visit.scope, person.uid, visit.actor)
        return await self._show_once(visit, token, person.name)

    async def disable(self, visit: Visit) -> web.StreamResponse:
        person = await self._person(visit)
        try:
            await self._administration.disable(visit.scope, person.uid, visit.actor)
        except LastAdministrator as error:
            return told(self._render_person(visit, person, error.message), error)
        return see_other(f"{PEOPLE}/{person.uid}", "person-disabled")

    async def enable(self, visit: Visit) -> web.StreamResponse:
        person = await self._person(visit)
        await self._administration.disable(visit.scope, person.uid, visit.actor, disabled=False)
        return see_other(f"{PEOPLE}/{person.uid}", "person-enabled")

    async def withdraw(self, visit: Visit) -> web.StreamResponse:
        if not await self._administration.withdraw(visit.scope, read_uid(visit.variables["link"]), visit.actor):
            raise NotFound("There is no such link.")
        return see_other(PEOPLE, "link-withdrawn")

    async def _person(self, visit: Visit) -> User:
        return await self._administration.find(visit.scope, read_uid(visit.variables["person"]))

    async def _show_once(self, visit: Visit, token: str, whom: str) -> web.StreamResponse:
        link = f"{self._reception.place(visit.call).site}{PREFIX}/setup/{token}"
        await self._sessions.show_next(visit.session, {"link": link, "whom": whom})
        return see_other(PEOPLE + "/link")

    def _render_form(self, visit: Visit, given: Mapping[str, object], mistake: str = "") -> web.Response:
        shown = {"roles": _roles(visit), "hints": ROLE_HINTS, "few": FEW_TENANTS}
        return visit.render("people/new.html", shown, given=given, mistake=mistake)

    def _render_person(self, visit: Visit, person: User, mistake: str = "") -> web.Response:
        tenants_of = tenant_namer(visit)
        given = {
            "role": person.role.value,
            "tenants": [str(uid) for uid in person.tenants],
            "tenant_names": "\n".join(tenants_of([uid]) for uid in person.tenants),
        }
        return visit.render(
            "people/person.html",
            person=person,
            tenants_of=tenants_of,
            few=FEW_TENANTS,
            given=given,
            roles=_roles(visit),
            hints=ROLE_HINTS,
            mistake=mistake,
        )


def _roles(visit: Visit) -> Sequence[tuple[str, str]]:
    """Return the roles that this person may give."""
    whole = visit.scope.tenants is None
    return [(role, ROLES[role]) for role in Role if whole or role is not Role.DEPLOYMENT_ADMINISTRATOR]


def _position(visit: Visit) -> Position:
    """Read the role and the tenants of a form."""
    try:
        role = Role(visit.form.text("role"))
        tenants = frozenset(UUID(text) for text in visit.form.many("tenants"))
    except ValueError:
        raise SchemaViolation("Choose a role and, where it needs them, tenants.") from None
    tenants |= {named_tenant(visit, line) for line in visit.form.raw("tenant_names").splitlines() if line.strip()}
    if role is Role.DEPLOYMENT_ADMINISTRATOR:
        tenants = frozenset()
    return Position(role, tenants)
