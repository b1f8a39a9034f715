"""The login pages: password and code, passkey, OpenID Connect."""

from collections.abc import Sequence
from http import HTTPStatus

from aiohttp import web

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
    LoginFailed,
    ProviderUnreachable,
    RateLimited,
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
        if session is None or session.user is not None or session.notes.user_id is None:
            return see_other(LOGIN)
        return self._render_code(request, session)

    async def take_code(self, request: VisitorRequest) -> web.StreamResponse:
        session = await self._visitors.checked_session(request)
        if session.notes.user_id is None:
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
