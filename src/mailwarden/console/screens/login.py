"""Signing in and out: a password and a code, a passkey, or the organisation's own login."""

from collections.abc import Sequence
from http import HTTPStatus

import segno
from aiohttp import web
from msgspec import Struct

from mailwarden.access.one_time_codes import address_of
from mailwarden.access.sessions import Session
from mailwarden.console.auth import LOGIN, OpenPage, Page, way_back
from mailwarden.console.permissions import Right
from mailwarden.console.request import Guest, Visit, see_other, told
from mailwarden.console.templating import HEADERS
from mailwarden.console.visitor_session import Reception, with_cookie, without_cookie
from mailwarden.errors import (
    LinkSpent,
    LoginFailed,
    NameTaken,
    ProviderUnreachable,
    RateLimited,
    SchemaViolation,
    UnsuitablePassword,
)

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


SETUP = "/console/setup"
FACTOR = SETUP + "/factor"
CODES = "/console/account/codes"


class SetupScreen:
    def __init__(self, reception: Reception) -> None:
        self._reception = reception
        self._setups = reception.setups

    def pages(self) -> Sequence[OpenPage]:
        return [
            OpenPage("GET", "/setup", self.show),
            OpenPage("POST", "/setup", self.choose),
            OpenPage("GET", "/setup/factor", self.show_factor),
            OpenPage("POST", "/setup/factor", self.prove_code),
            OpenPage("POST", "/setup/passkey/options", self.offer_passkey),
            OpenPage("POST", "/setup/passkey", self.prove_passkey),
            OpenPage("GET", "/setup/{token}", self.open),
        ]

    async def open(self, guest: Guest) -> web.StreamResponse:
        """Take the token out of the address at once; looking at a link does not spend it."""
        _, value = await self._setups.open(guest.variables["token"], self._reception.place(guest.call))
        return with_cookie(see_other(SETUP), value)

    async def show(self, guest: Guest) -> web.StreamResponse:
        return await self._render(guest, await self._visit(guest))

    async def choose(self, guest: Guest) -> web.StreamResponse:
        visit = await self._reception.trusted(guest)
        form = guest.form
        try:
            if form.raw("password") != form.raw("repeated"):
                raise UnsuitablePassword("The two passwords are not the same.")  # noqa: TRY301
            await self._setups.choose(visit, form.text("name"), form.raw("password"))
        except (UnsuitablePassword, NameTaken, SchemaViolation) as error:
            field = "password" if isinstance(error, UnsuitablePassword) else "name"
            page = await self._render(guest, visit, name=form.text("name"), mistakes={field: error.message})
            return told(page, error)
        return see_other(FACTOR)

    async def show_factor(self, guest: Guest) -> web.StreamResponse:
        visit = await self._visit(guest)
        if visit.notes.password_hash is None:
            return see_other(SETUP)
        await self._setups.link_of(visit)
        return self._render_factor(guest, visit)

    async def prove_code(self, guest: Guest) -> web.StreamResponse:
        visit = await self._reception.trusted(guest)
        place = self._reception.place(guest.call)
        try:
            _, value = await self._setups.prove_totp(visit, guest.form.text("code"), place)
        except (LoginFailed, RateLimited, NameTaken) as error:
            return told(self._render_factor(guest, visit, error.message), error)
        self._reception.note_user()
        return with_cookie(see_other(CODES), value)

    async def offer_passkey(self, guest: Guest) -> web.StreamResponse:
        visit = await self._reception.trusted(guest)
        _, options = await self._setups.offer_passkey(visit, self._reception.place(guest.call))
        return web.Response(text=options, content_type="application/json", headers=dict(HEADERS))

    async def prove_passkey(self, guest: Guest) -> web.StreamResponse:
        visit = await self._reception.trusted(guest)
        place = self._reception.place(guest.call)
        try:
            _, value = await self._setups.prove_passkey(visit, guest.form.raw("answer"), place)
        except (LoginFailed, RateLimited, NameTaken) as error:
            return told(self._render_factor(guest, visit, error.message), error)
        self._reception.note_user()
        return with_cookie(see_other(CODES), value)

    async def _visit(self, guest: Guest) -> Session:
        visit = await self._reception.session(guest)
        if visit is None or visit.user is not None or visit.notes.link is None:
            raise LinkSpent("Open the setup link again.")
        return visit

    async def _render(
        self, guest: Guest, visit: Session, *, name: str = "", mistakes: dict[str, str] | None = None
    ) -> web.Response:
        link = await self._setups.link_of(visit)
        return guest.render("setup/index.html", session=visit, link=link, name=name, mistakes=mistakes or {})

    def _render_factor(self, guest: Guest, visit: Session, mistake: str = "") -> web.Response:
        notes = visit.notes
        return guest.render(
            "setup/factor.html",
            session=visit,
            qr_code=draw_qr_code(address_of(notes.totp, notes.name)),
            secret=notes.totp,
            mistake=mistake,
            passkeys=self._reception.place(guest.call).takes_passkeys,
        )


BORDER = 4


class QrCode(Struct, frozen=True):
    """`path` is drawn in a square of `size` units."""

    size: int
    path: str


def draw_qr_code(text: str) -> QrCode:
    """Return the code of a text: one stroke for every run of dark modules."""
    rows = [bytes(row) for row in segno.make(text, micro=False, error="m").matrix_iter(border=BORDER)]
    strokes = []
    for y, row in enumerate(rows):
        x = 0
        while x < len(row):
            run = 1
            while x + run < len(row) and row[x + run] == row[x]:
                run += 1
            if row[x]:
                strokes.append(f"M{x} {y}h{run}v1h-{run}z")
            x += run
    return QrCode(len(rows), "".join(strokes))
