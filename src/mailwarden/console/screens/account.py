"""A person's own account: password, authenticator, passkeys, recovery codes and sessions."""

from collections.abc import Awaitable, Mapping, Sequence

from aiohttp import web

from mailwarden.access.account import Account
from mailwarden.access.one_time_codes import address_of
from mailwarden.access.setups import CODES as SHOWN_CODES
from mailwarden.console.auth import Page
from mailwarden.console.permissions import Right
from mailwarden.console.request import Visit, read_uid, see_other, told
from mailwarden.console.screens.login import draw_qr_code
from mailwarden.console.templating import HEADERS
from mailwarden.console.visitor_session import Reception
from mailwarden.errors import LoginFailed, MailwardenError, RateLimited, SchemaViolation, UnsuitablePassword

ACCOUNT = "/console/account"
CODES = ACCOUNT + "/codes"
TOTP = ACCOUNT + "/totp"
_MISTAKES = (LoginFailed, RateLimited, SchemaViolation, UnsuitablePassword)


class AccountScreen:
    def __init__(self, reception: Reception) -> None:
        self._reception = reception
        self._sessions = reception.registry.sessions
        self._account = Account(reception.registry)

    def pages(self) -> Sequence[Page]:
        rows = {
            "/account/password": self.change_password,
            "/account/totp": self.propose_totp,
            "/account/totp/prove": self.prove_totp,
            "/account/passkeys/options": self.offer_passkey,
            "/account/passkeys": self.add_passkey,
            "/account/passkeys/{passkey}/remove": self.remove_passkey,
            "/account/codes": self.renew_codes,
            "/account/sessions/{session}/end": self.end_session,
            "/account/sessions/end-others": self.end_others,
        }
        return [
            Page("GET", "/account", Right.ACCOUNT, self.show),
            Page("GET", "/account/codes", Right.ACCOUNT, self.show_codes),
            Page("GET", "/account/totp", Right.ACCOUNT, self.show_totp),
            *(Page("POST", path, Right.ACCOUNT, handler) for path, handler in rows.items()),
        ]

    async def show(self, visit: Visit) -> web.StreamResponse:
        return await self._render(visit, {})

    async def show_codes(self, visit: Visit) -> web.StreamResponse:
        """Show new recovery codes, once."""
        shown = await self._sessions.take_shown(visit.session, SHOWN_CODES)
        return visit.render("account/codes.html", codes=shown.get(SHOWN_CODES, "").split())

    async def show_totp(self, visit: Visit) -> web.StreamResponse:
        if not visit.session.notes.totp:
            return see_other(ACCOUNT)
        return self._render_totp(visit, "")

    async def change_password(self, visit: Visit) -> web.StreamResponse:
        form = visit.form
        if form.raw("wanted") != form.raw("repeated"):
            return await self._mistaken(visit, "wanted", UnsuitablePassword("The two passwords are not the same."))
        change = self._account.change_password(
            visit.session, form.raw("current"), form.raw("wanted"), self._reception.place(visit.call)
        )
        return await self._done(visit, change, {LoginFailed: "current"}, "wanted", "password-changed")

    async def propose_totp(self, visit: Visit) -> web.StreamResponse:
        try:
            await self._account.propose_totp(visit.session, visit.form.raw("password"))
        except _MISTAKES as error:
            return await self._mistaken(visit, "totp", error)
        return see_other(TOTP)

    async def prove_totp(self, visit: Visit) -> web.StreamResponse:
        try:
            await self._account.prove_totp(visit.session, visit.form.text("code"), self._reception.place(visit.call))
        except (LoginFailed, RateLimited) as error:
            if not visit.session.notes.totp:
                return see_other(ACCOUNT)
            return told(self._render_totp(visit, error.message), error)
        return see_other(ACCOUNT, "totp-changed")

    async def offer_passkey(self, visit: Visit) -> web.StreamResponse:
        place = self._reception.place(visit.call)
        _, options = await self._account.offer_passkey(visit.session, visit.form.raw("password"), place)
        return web.Response(text=options, content_type="application/json", headers=dict(HEADERS))

    async def add_passkey(self, visit: Visit) -> web.StreamResponse:
        add = self._account.add_passkey(
            visit.session, visit.form.raw("answer"), visit.form.text("label"), self._reception.place(visit.call)
        )
        return await self._done(visit, add, {}, "passkey", "passkey-added")

    async def remove_passkey(self, visit: Visit) -> web.StreamResponse:
        uid = read_uid(visit.variables["passkey"])
        remove = self._account.remove_passkey(visit.session, uid, self._reception.place(visit.call))
        return await self._done(visit, remove, {}, "passkey", "passkey-removed")

    async def renew_codes(self, visit: Visit) -> web.StreamResponse:
        try:
            place = self._reception.place(visit.call)
            await self._account.renew_recovery_codes(visit.session, visit.form.raw("password"), place)
        except _MISTAKES as error:
            return await self._mistaken(visit, "codes", error)
        return see_other(CODES)

    async def end_session(self, visit: Visit) -> web.StreamResponse:
        await self._sessions.end_one(visit.user, read_uid(visit.variables["session"]))
        return see_other(ACCOUNT, "session-ended")

    async def end_others(self, visit: Visit) -> web.StreamResponse:
        await self._sessions.end_others(visit.session)
        return see_other(ACCOUNT, "sessions-ended")

    async def _done(
        self,
        visit: Visit,
        deed: Awaitable[object],
        fields: Mapping[type[MailwardenError], str],
        field: str,
        done: str,
    ) -> web.StreamResponse:
        """Wait for a deed; show its mistake at the field that it belongs to."""
        try:
            await deed
        except _MISTAKES as error:
            return await self._mistaken(visit, fields.get(type(error), field), error)
        return see_other(ACCOUNT, done)

    async def _mistaken(self, visit: Visit, field: str, error: MailwardenError) -> web.StreamResponse:
        return told(await self._render(visit, {field: error.message}), error)

    async def _render(self, visit: Visit, mistakes: Mapping[str, str]) -> web.Response:
        return visit.render(
            "account/index.html",
            mistakes=mistakes,
            passkeys=await self._account.passkeys(visit.session),
            codes_left=await self._account.recovery_codes_left(visit.session),
            sessions=await self._sessions.list(visit.user),
            takes_passkeys=self._reception.place(visit.call).takes_passkeys,
        )

    def _render_totp(self, visit: Visit, mistake: str) -> web.Response:
        secret = visit.session.notes.totp
        qr_code = draw_qr_code(address_of(secret, visit.user.name))
        return visit.render("account/totp.html", secret=secret, qr_code=qr_code, mistake=mistake)
