"""Sessions of visitors without a login: each has a CSRF token and the state of a login or setup.

Security: reachable without a login. A session is found by its cookie or created, never taken from the URL; a form is
read only with the CSRF token of its session.
"""

import time

from aiohttp import web

from mailwarden.access.login import Logins, Registry, Setups
from mailwarden.access.openid import OpenId, OpenIdSettings, Provider
from mailwarden.access.sessions import COOKIE, MAX_GOAL, ClientOrigin, Notes, Session, cookie_header, end_cookie_header
from mailwarden.console.forms import CSRF_FIELD, forged_form
from mailwarden.console.request import VisitorRequest
from mailwarden.errors import NotFound
from mailwarden.model.scope import Scope
from mailwarden.serving.http_app import Call

ASK_SECONDS = 5.0  # between two checks for a first user


class VisitorSessions:
    """The services of the login and setup pages."""

    def __init__(self, registry: Registry, public_url: str = "") -> None:
        self.registry = registry
        self.logins = Logins(registry)
        self.setups = Setups(registry, self.logins)
        self.organisation = ""  # label of the OpenID login button; empty if disabled
        self._openid: OpenId | None = None
        self._is_empty, self._next_check = True, 0.0
        self._public_url = public_url.lower().removesuffix(":443")  # in the form of an Origin header

    def offer_openid(self, settings: OpenIdSettings, provider: Provider, title: str) -> None:
        """Enable login with an OpenID provider."""
        self._openid = OpenId(settings, provider, self.registry, self.logins)
        self.organisation = title

    def openid(self) -> OpenId:
        if self._openid is None:
            raise NotFound("There is nothing at this path.")
        return self._openid

    def origin(self, call: Call) -> ClientOrigin:
        """Return the origin of the request; the site is `console.publicUrl`, or the Host header."""
        request = call.request
        return ClientOrigin(
            site=self._public_url or f"https://{request.host.lower()}",
            address=call.address,
            agent=request.headers.get("User-Agent", ""),
            request_id=call.request_id,
        )

    async def find_session(self, request: VisitorRequest) -> Session | None:
        """Return the session of the request's cookie, with or without a user."""
        return await self.registry.sessions.find(request.call.request.cookies.get(COOKIE, ""))

    async def ensure_session(self, request: VisitorRequest, goal: str = "") -> tuple[Session, str | None]:
        """Return the visitor's session, and the cookie's value if it is new."""
        goal = goal if len(goal.encode()) <= MAX_GOAL else ""
        found = await self.find_session(request)
        if found is not None and found.user is None and found.notes.link is None:
            if not goal or goal == found.notes.goal:
                return found, None
            return await self.registry.sessions.note(found, Notes(goal=goal))
        return self.registry.sessions.visit(Notes(goal=goal))

    async def has_no_users(self) -> bool:
        """Return whether the deployment has no users; the answer is cached, for good once there is one."""
        if self._is_empty and time.monotonic() >= self._next_check:
            self._is_empty = await self.registry.users.is_empty(Scope.deployment())
            self._next_check = time.monotonic() + ASK_SECONDS
        return self._is_empty

    def note_user(self) -> None:
        """Remember that the deployment has a user."""
        self._is_empty = False

    async def checked_session(self, request: VisitorRequest) -> Session:
        """Return the session of a form with a valid CSRF token, or raise Forbidden."""
        found = await self.find_session(request)
        if found is None or found.user is not None or not found.admits(request.form.text(CSRF_FIELD)):
            raise forged_form()
        return found


def with_cookie(response: web.StreamResponse, value: str | None) -> web.StreamResponse:
    """Add the session cookie to the response, if there is one."""
    if value is not None:
        response.headers.add("Set-Cookie", cookie_header(value))
    return response


def without_cookie(response: web.StreamResponse) -> web.StreamResponse:
    response.headers.add("Set-Cookie", end_cookie_header())
    return response
