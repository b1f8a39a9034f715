"""The login pages (password and code, passkey, OpenID Connect) and the setup pages behind a setup link."""

from collections.abc import Sequence
from http import HTTPStatus

import segno
from aiohttp import web
from msgspec import Struct

from mailwarden.access.factors import totp_uri
from mailwarden.access.sessions import Session
from mailwarden.console.auth import (
    LOGIN,
    Page,
    PublicPage,
    VisitorSessions,
    safe_return_path,
    with_cookie,
    without_cookie,
)
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, VisitorRequest, see_other, with_error_status
from mailwarden.console.templating import HEADERS
from mailwarden.errors import (
    LinkInvalid,
    LoginFailed,
    NameTaken,
    ProviderUnreachable,
    RateLimited,
    SchemaViolation,
    UnsuitablePassword,
)

CODE = LOGIN + "/code"


class LoginScreen:
    def __init__(self, visitors: VisitorSessions) -> None:
        self._visitors = visitors

    def pages(self) -> Sequence[Page | PublicPage]:
        return [
            PublicPage("GET", "/login", self.show),
            PublicPage("POST", "/login", self.take_password),
            PublicPage("GET", "/login/code", self.show_code),
            PublicPage("POST", "/login/code", self.take_code),
            PublicPage("POST", "/login/passkey/options", self.offer_passkey),
            PublicPage("POST", "/login/passkey", self.take_passkey),
            PublicPage("GET", "/login/openid", self.leave),
            PublicPage("GET", "/login/openid/callback", self.come_back),
            Page("POST", "/logout", Permission.ACCOUNT, self.sign_out),
        ]

    async def show(self, request: VisitorRequest) -> web.StreamResponse:
        """Show the login page, or redirect a signed-in user to the requested page."""
        wanted = request.query.get("next")
        goal = "" if wanted is None else safe_return_path(wanted)
        found = await self._visitors.find_session(request)
        if found is not None and found.user is not None:
            return see_other(safe_return_path(goal))
        session, value = await self._visitors.ensure_session(request, goal)
        no_users = await self._visitors.has_no_users()
        return with_cookie(self._render(request, session, no_users=no_users), value)

    async def take_password(self, request: VisitorRequest) -> web.StreamResponse:
        session = await self._visitors.checked_session(request)
        name, place = request.form.text("name"), self._visitors.origin(request.call)
        try:
            _, value = await self._visitors.logins.check_password(session, name, request.form.raw("password"), place)
        except (LoginFailed, RateLimited) as error:
            return with_error_status(self._render(request, session, mistake=error.message, name=name), error)
        return with_cookie(see_other(CODE), value)

    async def show_code(self, request: VisitorRequest) -> web.StreamResponse:
        session = await self._visitors.find_session(request)
        if session is None or session.user is not None or session.notes.person is None:
            return see_other(LOGIN)
        return self._render_code(request, session)

    async def take_code(self, request: VisitorRequest) -> web.StreamResponse:
        session = await self._visitors.checked_session(request)
        if session.notes.person is None:
            return see_other(LOGIN)
        try:
            _, value = await self._visitors.logins.check_code(
                session, request.form.text("code"), self._visitors.origin(request.call)
            )
        except (LoginFailed, RateLimited) as error:
            return with_error_status(self._render_code(request, session, mistake=error.message), error)
        return with_cookie(see_other(safe_return_path(session.notes.goal)), value)

    async def offer_passkey(self, request: VisitorRequest) -> web.StreamResponse:
        session = await self._visitors.checked_session(request)
        _, value, options = await self._visitors.logins.offer_passkey(session, self._visitors.origin(request.call))
        response = web.Response(text=options, content_type="application/json", headers=dict(HEADERS))
        return with_cookie(response, value)

    async def take_passkey(self, request: VisitorRequest) -> web.StreamResponse:
        session = await self._visitors.checked_session(request)
        place = self._visitors.origin(request.call)
        try:
            _, value = await self._visitors.logins.check_passkey(session, request.form.raw("answer"), place)
        except (LoginFailed, RateLimited) as error:
            return with_error_status(self._render(request, session, mistake=error.message), error)
        return with_cookie(see_other(safe_return_path(session.notes.goal)), value)

    async def leave(self, request: VisitorRequest) -> web.StreamResponse:
        """Redirect to the OpenID provider."""
        session, _ = await self._visitors.ensure_session(request)
        address, value = await self._visitors.openid().begin(session)
        response = web.Response(status=HTTPStatus.SEE_OTHER, headers={**HEADERS, "Location": address})
        return with_cookie(response, value)

    async def come_back(self, request: VisitorRequest) -> web.StreamResponse:
        """Sign in the user that the OpenID provider names."""
        openid = self._visitors.openid()
        session = await self._visitors.find_session(request)
        if session is None or session.user is not None:
            return see_other(LOGIN)
        try:
            _, value = await openid.finish(session, request.query, self._visitors.origin(request.call))
        except (LoginFailed, RateLimited, ProviderUnreachable) as error:
            return with_error_status(self._render(request, session, mistake=error.message), error)
        return with_cookie(see_other(safe_return_path(session.notes.goal)), value)

    async def sign_out(self, request: UserRequest) -> web.StreamResponse:
        await self._visitors.registry.sessions.end(request.session)
        return without_cookie(see_other(LOGIN, "signed-out"))

    def _render(
        self, request: VisitorRequest, session: Session, *, mistake: str = "", name: str = "", no_users: bool = False
    ) -> web.Response:
        return request.render(
            "login/index.html",
            session=session,
            mistake=mistake,
            name=name,
            no_users=no_users,
            passkeys=self._visitors.origin(request.call).takes_passkeys,
            organisation=self._visitors.organisation,
        )

    def _render_code(self, request: VisitorRequest, session: Session, mistake: str = "") -> web.Response:
        passkeys = self._visitors.origin(request.call).takes_passkeys
        return request.render("login/code.html", session=session, mistake=mistake, passkeys=passkeys)


SETUP = "/console/setup"
FACTOR = SETUP + "/factor"
CODES = "/console/account/codes"


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


BORDER = 4


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
