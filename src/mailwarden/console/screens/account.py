"""The user's own account: password, authenticator, passkeys, recovery codes, sessions, language and time zone."""

from collections.abc import Awaitable, Mapping, Sequence

from aiohttp import web

from mailwarden.access.accounts import Account
from mailwarden.access.factors import totp_uri
from mailwarden.access.login import CODES as SHOWN_CODES
from mailwarden.console.auth import Page, VisitorSessions
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, read_uid, see_other, with_error_status
from mailwarden.console.screens.setup import draw_qr_code
from mailwarden.console.templating import HEADERS
from mailwarden.errors import LoginFailed, MailwardenError, RateLimited, SchemaViolation, UnsuitablePassword

ACCOUNT = "/console/account"
CODES = ACCOUNT + "/codes"
TOTP = ACCOUNT + "/totp"
_FORM_ERRORS = (LoginFailed, RateLimited, SchemaViolation, UnsuitablePassword)


class AccountScreen:
    def __init__(self, visitors: VisitorSessions) -> None:
        self._visitors = visitors
        self._sessions = visitors.registry.sessions
        self._users = visitors.registry.users
        self._account = Account(visitors.registry)

    def pages(self) -> Sequence[Page]:
        rows = {
            "/account/password": self.change_password,
            "/account/totp": self.propose_totp,
            "/account/totp/prove": self.prove_totp,
            "/account/passkeys/options": self.offer_passkey,
            "/account/passkeys": self.add_passkey,
            "/account/passkeys/{passkey}/remove": self.remove_passkey,
            "/account/codes": self.renew_codes,
            "/account/language": self.set_language,
            "/account/time-zone": self.set_time_zone,
            "/account/sessions/{session}/end": self.end_session,
            "/account/sessions/end-others": self.end_others,
        }
        return [
            Page("GET", "/account", Permission.ACCOUNT, self.show),
            Page("GET", "/account/codes", Permission.ACCOUNT, self.show_codes),
            Page("GET", "/account/totp", Permission.ACCOUNT, self.show_totp),
            *(Page("POST", path, Permission.ACCOUNT, handler) for path, handler in rows.items()),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        return await self._render(request, {})

    async def show_codes(self, request: UserRequest) -> web.StreamResponse:
        """Show new recovery codes, once."""
        shown = await self._sessions.take_shown(request.session, SHOWN_CODES)
        return request.render("account/codes.html", codes=shown.get(SHOWN_CODES, "").split())

    async def show_totp(self, request: UserRequest) -> web.StreamResponse:
        if not request.session.notes.totp:
            return see_other(ACCOUNT)
        return self._render_totp(request, "")

    async def change_password(self, request: UserRequest) -> web.StreamResponse:
        form = request.form
        if form.raw("wanted") != form.raw("repeated"):
            return await self._with_mistake(
                request, "wanted", UnsuitablePassword("The two passwords are not the same.")
            )
        change = self._account.change_password(
            request.session, form.raw("current"), form.raw("wanted"), self._visitors.origin(request.call)
        )
        return await self._done(request, change, {LoginFailed: "current"}, "wanted", "password-changed")

    async def propose_totp(self, request: UserRequest) -> web.StreamResponse:
        try:
            await self._account.propose_totp(request.session, request.form.raw("password"))
        except _FORM_ERRORS as error:
            return await self._with_mistake(request, "totp", error)
        return see_other(TOTP)

    async def prove_totp(self, request: UserRequest) -> web.StreamResponse:
        try:
            await self._account.prove_totp(
                request.session, request.form.text("code"), self._visitors.origin(request.call)
            )
        except (LoginFailed, RateLimited) as error:
            if not request.session.notes.totp:
                return see_other(ACCOUNT)
            return with_error_status(self._render_totp(request, error.message), error)
        return see_other(ACCOUNT, "totp-changed")

    async def offer_passkey(self, request: UserRequest) -> web.StreamResponse:
        place = self._visitors.origin(request.call)
        _, options = await self._account.offer_passkey(request.session, request.form.raw("password"), place)
        return web.Response(text=options, content_type="application/json", headers=dict(HEADERS))

    async def add_passkey(self, request: UserRequest) -> web.StreamResponse:
        add = self._account.add_passkey(
            request.session, request.form.raw("answer"), request.form.text("label"), self._visitors.origin(request.call)
        )
        return await self._done(request, add, {}, "passkey", "passkey-added")

    async def remove_passkey(self, request: UserRequest) -> web.StreamResponse:
        uid = read_uid(request.variables["passkey"])
        remove = self._account.remove_passkey(request.session, uid, self._visitors.origin(request.call))
        return await self._done(request, remove, {}, "passkey", "passkey-removed")

    async def renew_codes(self, request: UserRequest) -> web.StreamResponse:
        try:
            place = self._visitors.origin(request.call)
            await self._account.renew_recovery_codes(request.session, request.form.raw("password"), place)
        except _FORM_ERRORS as error:
            return await self._with_mistake(request, "codes", error)
        return see_other(CODES)

    async def set_language(self, request: UserRequest) -> web.StreamResponse:
        code = request.form.text("language")
        if code and code not in dict(request.templates.languages.choices):
            error = SchemaViolation("The console does not have this language. Choose one that the page offers.")
            return await self._with_mistake(request, "language", error)
        change = self._users.set_language(request.scope, request.user.uid, code)
        return await self._done(request, change, {}, "language", "language-changed")

    async def set_time_zone(self, request: UserRequest) -> web.StreamResponse:
        set_zone = self._users.set_time_zone(request.scope, request.user.uid, request.form.text("time_zone"))
        return await self._done(request, set_zone, {}, "time_zone", "time-zone-changed")

    async def end_session(self, request: UserRequest) -> web.StreamResponse:
        await self._sessions.end_one(request.user, read_uid(request.variables["session"]))
        return see_other(ACCOUNT, "session-ended")

    async def end_others(self, request: UserRequest) -> web.StreamResponse:
        await self._sessions.end_others(request.session)
        return see_other(ACCOUNT, "sessions-ended")

    async def _done(
        self,
        request: UserRequest,
        change: Awaitable[object],
        fields: Mapping[type[MailwardenError], str],
        field: str,
        done: str,
    ) -> web.StreamResponse:
        """Apply a change; show an error at the form field that caused it."""
        try:
            await change
        except _FORM_ERRORS as error:
            return await self._with_mistake(request, fields.get(type(error), field), error)
        return see_other(ACCOUNT, done)

    async def _with_mistake(self, request: UserRequest, field: str, error: MailwardenError) -> web.StreamResponse:
        return with_error_status(await self._render(request, {field: error.message}), error)

    async def _render(self, request: UserRequest, mistakes: Mapping[str, str]) -> web.Response:
        return request.render(
            "account/index.html",
            mistakes=mistakes,
            typed_zone=request.form.text("time_zone") if "time_zone" in mistakes else request.user.time_zone,
            passkeys=await self._account.passkeys(request.session),
            codes_left=await self._account.recovery_codes_left(request.session),
            sessions=await self._sessions.list(request.user),
            takes_passkeys=self._visitors.origin(request.call).takes_passkeys,
        )

    def _render_totp(self, request: UserRequest, mistake: str) -> web.Response:
        secret = request.session.notes.totp
        qr_code = draw_qr_code(totp_uri(secret, request.user.name))
        return request.render("account/totp.html", secret=secret, qr_code=qr_code, mistake=mistake)
