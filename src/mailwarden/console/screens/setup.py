"""Setting up: whoever opens a setup link chooses a name and a password, then a second factor, and is in."""

from collections.abc import Sequence

from aiohttp import web

from mailwarden.access.one_time_codes import address_of
from mailwarden.access.sessions import Session
from mailwarden.console.page import OpenPage
from mailwarden.console.qr_code import draw_qr_code
from mailwarden.console.reception import Reception, with_cookie
from mailwarden.console.screens.login import told
from mailwarden.console.templating import HEADERS
from mailwarden.console.visit import Guest, see_other
from mailwarden.errors import LinkSpent, LoginFailed, NameTaken, RateLimited, SchemaViolation, UnsuitablePassword

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
