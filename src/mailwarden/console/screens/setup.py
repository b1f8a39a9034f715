"""The setup pages behind a setup link: password, authenticator code, recovery codes."""

from collections.abc import Sequence

import segno
from aiohttp import web
from msgspec import Struct

from mailwarden.access.factors import totp_uri
from mailwarden.access.sessions import Session
from mailwarden.console.auth import (
    PublicPage,
    VisitorSessions,
    with_cookie,
)
from mailwarden.console.request import VisitorRequest, see_other, with_error_status
from mailwarden.console.templating import HEADERS
from mailwarden.errors import (
    LinkInvalid,
    LoginFailed,
    NameTaken,
    RateLimited,
    SchemaViolation,
    UnsuitablePassword,
)

SETUP = "/console/setup"
FACTOR = SETUP + "/factor"
CODES = "/console/account/codes"

BORDER = 4


class SetupScreen:
    def __init__(self, visitors: VisitorSessions) -> None:
        self._visitors = visitors
        self._setups = visitors.setups

    def pages(self) -> Sequence[PublicPage]:
        return [
            PublicPage("GET", "/setup", self.show),
            PublicPage("POST", "/setup", self.choose),
            PublicPage("GET", "/setup/factor", self.show_factor),
            PublicPage("POST", "/setup/factor", self.prove_code),
            PublicPage("POST", "/setup/passkey/options", self.offer_passkey),
            PublicPage("POST", "/setup/passkey", self.prove_passkey),
            PublicPage("GET", "/setup/{token}", self.open),
        ]

    async def open(self, request: VisitorRequest) -> web.StreamResponse:
        """Move the token from the URL to the session; opening a link does not use it up."""
        _, value = await self._setups.open(request.variables["token"], self._visitors.origin(request.call))
        return with_cookie(see_other(SETUP), value)

    async def show(self, request: VisitorRequest) -> web.StreamResponse:
        return await self._render(request, await self._session(request))

    async def choose(self, request: VisitorRequest) -> web.StreamResponse:
        session = await self._visitors.checked_session(request)
        form = request.form
        try:
            if form.raw("password") != form.raw("repeated"):
                raise UnsuitablePassword("The two passwords are not the same.")  # noqa: TRY301
            await self._setups.choose(session, form.text("name"), form.raw("password"))
        except (UnsuitablePassword, NameTaken, SchemaViolation) as error:
            field = "password" if isinstance(error, UnsuitablePassword) else "name"
            page = await self._render(request, session, name=form.text("name"), mistakes={field: error.message})
            return with_error_status(page, error)
        return see_other(FACTOR)

    async def show_factor(self, request: VisitorRequest) -> web.StreamResponse:
        session = await self._session(request)
        if session.notes.password_hash is None:
            return see_other(SETUP)
        await self._setups.link_of(session)
        return self._render_factor(request, session)

    async def prove_code(self, request: VisitorRequest) -> web.StreamResponse:
        session = await self._visitors.checked_session(request)
        place = self._visitors.origin(request.call)
        try:
            _, value = await self._setups.prove_totp(session, request.form.text("code"), place)
        except (LoginFailed, RateLimited, NameTaken) as error:
            return with_error_status(self._render_factor(request, session, error.message), error)
        self._visitors.note_user()
        return with_cookie(see_other(CODES), value)

    async def offer_passkey(self, request: VisitorRequest) -> web.StreamResponse:
        session = await self._visitors.checked_session(request)
        _, options = await self._setups.offer_passkey(session, self._visitors.origin(request.call))
        return web.Response(text=options, content_type="application/json", headers=dict(HEADERS))

    async def prove_passkey(self, request: VisitorRequest) -> web.StreamResponse:
        session = await self._visitors.checked_session(request)
        place = self._visitors.origin(request.call)
        try:
            _, value = await self._setups.prove_passkey(session, request.form.raw("answer"), place)
        except (LoginFailed, RateLimited, NameTaken) as error:
            return with_error_status(self._render_factor(request, session, error.message), error)
        self._visitors.note_user()
        return with_cookie(see_other(CODES), value)

    async def _session(self, request: VisitorRequest) -> Session:
        session = await self._visitors.find_session(request)
        if session is None or session.user is not None or session.notes.link is None:
            raise LinkInvalid("Open the setup link again.")
        return session

    async def _render(
        self, request: VisitorRequest, session: Session, *, name: str = "", mistakes: dict[str, str] | None = None
    ) -> web.Response:
        link = await self._setups.link_of(session)
        return request.render("setup/index.html", session=session, link=link, name=name, mistakes=mistakes or {})

    def _render_factor(self, request: VisitorRequest, session: Session, mistake: str = "") -> web.Response:
        notes = session.notes
        return request.render(
            "setup/factor.html",
            session=session,
            qr_code=draw_qr_code(totp_uri(notes.totp, notes.name)),
            secret=notes.totp,
            mistake=mistake,
            passkeys=self._visitors.origin(request.call).takes_passkeys,
        )


class QrCode(Struct, frozen=True):
    """A QR code as the path of an SVG with `size` units on each side, so that the page needs no image."""

    size: int
    path: str


def draw_qr_code(text: str) -> QrCode:
    """Return the QR code of a text, with one stroke for each run of dark modules."""
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
