"""Signing in and out: a password and a code, a passkey, or the organisation's own login."""

from collections.abc import Sequence
from http import HTTPStatus

from aiohttp import web

from mailwarden.access.sessions import Session
from mailwarden.console.door import LOGIN, way_back
from mailwarden.console.page import OpenPage, Page
from mailwarden.console.reception import Reception, with_cookie, without_cookie
from mailwarden.console.rights import Right
from mailwarden.console.templating import HEADERS
from mailwarden.console.visit import Guest, Visit, see_other
from mailwarden.errors import LoginFailed, MailwardenError, ProviderUnreachable, RateLimited
from mailwarden.serving.errors import STATUS_OF

CODE = LOGIN + "/code"


class LoginScreen:
    def __init__(self, reception: Reception) -> None:
        self._reception = reception

    def pages(self) -> Sequence[Page | OpenPage]:
        return [
            OpenPage("GET", "/login", self.show),
            OpenPage("POST", "/login", self.take_password),
            OpenPage("GET", "/login/code", self.show_code),
            OpenPage("POST", "/login/code", self.take_code),
            OpenPage("POST", "/login/passkey/options", self.offer_passkey),
            OpenPage("POST", "/login/passkey", self.take_passkey),
            OpenPage("GET", "/login/openid", self.leave),
            OpenPage("GET", "/login/openid/callback", self.come_back),
            Page("POST", "/logout", Right.ACCOUNT, self.sign_out),
        ]

    async def show(self, guest: Guest) -> web.StreamResponse:
        """Show the login page, or go on to where the person wants to be if they are in already."""
        wanted = guest.query.get("next")
        goal = "" if wanted is None else way_back(wanted)
        found = await self._reception.session(guest)
        if found is not None and found.user is not None:
            return see_other(way_back(goal))
        visit, value = await self._reception.greet(guest, goal)
        nobody = await self._reception.nobody_exists()
        return with_cookie(self._render(guest, visit, nobody=nobody), value)

    async def take_password(self, guest: Guest) -> web.StreamResponse:
        visit = await self._reception.trusted(guest)
        name, place = guest.form.text("name"), self._reception.place(guest.call)
        try:
            _, value = await self._reception.logins.check_password(visit, name, guest.form.raw("password"), place)
        except (LoginFailed, RateLimited) as error:
            return told(self._render(guest, visit, mistake=error.message, name=name), error)
        return with_cookie(see_other(CODE), value)

    async def show_code(self, guest: Guest) -> web.StreamResponse:
        visit = await self._reception.session(guest)
        if visit is None or visit.user is not None or visit.notes.person is None:
            return see_other(LOGIN)
        return self._render_code(guest, visit)

    async def take_code(self, guest: Guest) -> web.StreamResponse:
        visit = await self._reception.trusted(guest)
        if visit.notes.person is None:
            return see_other(LOGIN)
        try:
            _, value = await self._reception.logins.check_code(
                visit, guest.form.text("code"), self._reception.place(guest.call)
            )
        except (LoginFailed, RateLimited) as error:
            return told(self._render_code(guest, visit, mistake=error.message), error)
        return with_cookie(see_other(way_back(visit.notes.goal)), value)

    async def offer_passkey(self, guest: Guest) -> web.StreamResponse:
        visit = await self._reception.trusted(guest)
        _, value, options = await self._reception.logins.offer_passkey(visit, self._reception.place(guest.call))
        response = web.Response(text=options, content_type="application/json", headers=dict(HEADERS))
        return with_cookie(response, value)

    async def take_passkey(self, guest: Guest) -> web.StreamResponse:
        visit = await self._reception.trusted(guest)
        place = self._reception.place(guest.call)
        try:
            _, value = await self._reception.logins.check_passkey(visit, guest.form.raw("answer"), place)
        except (LoginFailed, RateLimited) as error:
            return told(self._render(guest, visit, mistake=error.message), error)
        return with_cookie(see_other(way_back(visit.notes.goal)), value)

    async def leave(self, guest: Guest) -> web.StreamResponse:
        """Send the browser to the organisation's own login."""
        visit, _ = await self._reception.greet(guest)
        address, value = await self._reception.openid().begin(visit)
        response = web.Response(status=HTTPStatus.SEE_OTHER, headers={**HEADERS, "Location": address})
        return with_cookie(response, value)

    async def come_back(self, guest: Guest) -> web.StreamResponse:
        """Take in whoever the organisation's login vouches for."""
        openid = self._reception.openid()
        visit = await self._reception.session(guest)
        if visit is None or visit.user is not None:
            return see_other(LOGIN)
        try:
            _, value = await openid.finish(visit, guest.query, self._reception.place(guest.call))
        except (LoginFailed, RateLimited, ProviderUnreachable) as error:
            return told(self._render(guest, visit, mistake=error.message), error)
        return with_cookie(see_other(way_back(visit.notes.goal)), value)

    async def sign_out(self, visit: Visit) -> web.StreamResponse:
        await self._reception.registry.sessions.end(visit.session)
        return without_cookie(see_other(LOGIN, "signed-out"))

    def _render(
        self, guest: Guest, visit: Session, *, mistake: str = "", name: str = "", nobody: bool = False
    ) -> web.Response:
        return guest.render(
            "login/index.html",
            session=visit,
            mistake=mistake,
            name=name,
            nobody=nobody,
            passkeys=self._reception.place(guest.call).takes_passkeys,
            organisation=self._reception.organisation,
        )

    def _render_code(self, guest: Guest, visit: Session, mistake: str = "") -> web.Response:
        passkeys = self._reception.place(guest.call).takes_passkeys
        return guest.render("login/code.html", session=visit, mistake=mistake, passkeys=passkeys)


def told(response: web.Response, error: MailwardenError) -> web.Response:
    """Return the page with the status of what went wrong in the form."""
    response.set_status(STATUS_OF.get(type(error), HTTPStatus.BAD_REQUEST))
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response
