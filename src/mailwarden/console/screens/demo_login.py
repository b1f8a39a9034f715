"""The login of a demo: a list of its users, one click each, in place of the usual login pages.

Security: the only login without a password. abby builds this screen only if abby.yml says `demo`, which requires a
listener on loopback, and if the database has the mark of a demo (access/demo_mark.py). Here every request is checked
once more: it comes from loopback, was passed on by no proxy, and names this host.
"""

from collections.abc import Sequence
from uuid import UUID

from aiohttp import web

from mailwarden.access.tenants import TenantDirectory
from mailwarden.access.users import Role, User
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
from mailwarden.console.request import UserRequest, VisitorRequest, see_other
from mailwarden.errors import Forbidden, LoginFailed
from mailwarden.model.scope import Scope
from mailwarden.serving.http_app import Call

METHOD = "demo"
_ORDER = (Role.DEPLOYMENT_ADMINISTRATOR, Role.ANALYST, Role.TENANT_ADMINISTRATOR, Role.AUDITOR)


class DemoLoginScreen:
    def __init__(self, visitors: VisitorSessions, directory: TenantDirectory) -> None:
        self._visitors = visitors
        self._directory = directory

    def pages(self) -> Sequence[Page | PublicPage]:
        return [
            PublicPage("GET", "/login", self.show),
            PublicPage("POST", "/login/demo", self.take),
            Page("POST", "/logout", Permission.ACCOUNT, self.sign_out),
        ]

    async def show(self, request: VisitorRequest) -> web.StreamResponse:
        require_this_host(request.call)
        path = request.query.get("next")
        goal = "" if path is None else safe_return_path(path)
        present = await self._visitors.find_session(request)
        if present is not None and present.user is not None:
            return see_other(safe_return_path(goal))
        session, value = await self._visitors.ensure_session(request, goal)
        return with_cookie(request.render("login/demo.html", session=session, users=await self._users()), value)

    async def take(self, request: VisitorRequest) -> web.StreamResponse:
        require_this_host(request.call)
        session = await self._visitors.checked_session(request)
        registry = self._visitors.registry
        try:
            user = await registry.users.find(Scope.deployment(), UUID(request.form.text("user")))
        except ValueError:
            user = None
        if user is None or user.disabled:
            raise LoginFailed("The demo has no such user.")
        _, value = await self._visitors.logins.complete(session, user, METHOD, self._visitors.origin(request.call))
        return with_cookie(see_other(safe_return_path(session.notes.goal)), value)

    async def sign_out(self, request: UserRequest) -> web.StreamResponse:
        await self._visitors.registry.sessions.end(request.session)
        return without_cookie(see_other(LOGIN, "signed-out"))

    async def _users(self) -> Sequence[tuple[User, str]]:
        """Return the users by role, each with the names of its tenants."""
        registry = self._visitors.registry
        names = {tenant.uid: tenant.name for tenant in self._directory.known(Scope.deployment())}
        users = [user for user in await registry.users.list(Scope.deployment()) if not user.disabled]
        ordered = sorted(users, key=lambda user: (_ORDER.index(user.role), user.name))
        return [(user, ", ".join(sorted(names.get(uid, "") for uid in user.tenants))) for user in ordered]


def require_this_host(call: Call) -> None:
    if not call.is_from_this_host:
        raise Forbidden("The demo's login is for browsers on this host alone, at https://localhost, without a proxy.")
