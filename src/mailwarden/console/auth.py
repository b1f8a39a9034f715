"""Authorizes requests to the console: the user's session, the permission of the page, and the origin of a form.

A visitor without a login has a session too: it has a CSRF token and the state of a login or setup. It is found by its
cookie or created, never taken from the URL.

Security: the only place that decides. It checks in this order: the session, the site that sent the form, the
permission, the CSRF token. Every error becomes a page with one sentence.
"""

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from aiohttp import web

from mailwarden.access.login import Logins, Registry, Setups
from mailwarden.access.openid import OpenId, OpenIdSettings, Provider
from mailwarden.access.sessions import (
    COOKIE,
    MAX_GOAL,
    ClientOrigin,
    Notes,
    Session,
    Sessions,
    cookie_header,
    end_cookie_header,
)
from mailwarden.access.tenants import TenantDirectory
from mailwarden.access.users import User
from mailwarden.console.forms import CSRF_FIELD, CSRF_HEADER, EMPTY, Form, forged_form, read_form, read_upload
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, VisitorRequest
from mailwarden.console.templating import HEADERS, Templates
from mailwarden.console.texts import ADVICE, DONE
from mailwarden.crypto.mac import equal
from mailwarden.errors import Forbidden, InternalError, MailwardenError, MethodNotAllowed, NotFound
from mailwarden.model.scope import Scope
from mailwarden.serving.errors import STATUS_OF, answer_for
from mailwarden.serving.http_app import Call, Handler, Route
from mailwarden.telemetry.logs import get_logger

PREFIX = "/console"

UserHandler = Callable[[UserRequest], Awaitable[web.StreamResponse]]
VisitorHandler = Callable[[VisitorRequest], Awaitable[web.StreamResponse]]
ASK_SECONDS = 5.0  # between two checks for a first user

LOGIN = "/console/login"
SIGN_OUT = "/console/logout"
_SAFE_METHODS = ("GET", "HEAD")
_SAME_SITE = ("same-origin", "none")

log = get_logger("console")


class BodyType(Enum):
    """The kind of body that a page accepts."""

    NOTHING = auto()
    FORM = auto()
    UPLOAD = auto()  # multipart/form-data, with files; its first part is the CSRF token


@dataclass(frozen=True, slots=True)
class Page:
    """A page for signed-in users; the path is the part after /console."""

    method: str
    path: str
    permission: Permission
    handler: UserHandler = field(repr=False)
    body: BodyType = BodyType.FORM
    quiet: bool = False  # polled every few seconds by an open page, therefore not logged


@dataclass(frozen=True, slots=True)
class PublicPage:
    """A page that needs no login: login and setup."""

    method: str
    path: str
    handler: VisitorHandler = field(repr=False)


class ConsoleAuth:
    """Turns pages into routes that authorize each request."""

    def __init__(self, sessions: Sessions, templates: Templates, directory: TenantDirectory, spool: Path) -> None:
        self._sessions = sessions
        self._templates = templates
        self._directory = directory
        self._spool = spool

    def routes(self, pages: Sequence[Page | PublicPage]) -> list[Route]:
        """Return the routes of the pages, and those that answer all other paths of the console with an error page."""
        return [
            Route(page.method, PREFIX + page.path, self._open(page), quiet=isinstance(page, Page) and page.quiet)
            for page in (*pages, *_pages_of_forms(pages))
        ] + [Route("GET", PREFIX + "/{rest*}", self._show_no_page)]

    def _open(self, page: Page | PublicPage) -> Handler:
        async def answer(call: Call) -> web.StreamResponse:
            self._templates.languages.use_for(call.request)
            serve = self._serve_visitor(page, call) if isinstance(page, PublicPage) else self._serve_user(page, call)
            return await self._or_error_page(page, call, serve)

        return answer

    async def _show_no_page(self, call: Call) -> web.StreamResponse:
        """Answer a path without a page: inside the layout for a signed-in user."""
        request = None
        self._templates.languages.use_for(call.request)
        try:
            session = await self._sessions.find(call.request.cookies.get(COOKIE, ""))
            if session is not None and session.user is not None:
                request = self._user_request(call, session, session.user)
        except MailwardenError as error:
            return self._error_page(call, error)
        return self._error_page(call, NotFound("There is no such page."), request)

    def _user_request(self, call: Call, session: Session, user: User) -> UserRequest:
        self._templates.languages.use_for(call.request, user.language)
        return UserRequest(call, user, session, EMPTY, self._templates, self._directory)

    async def _or_error_page(
        self,
        page: Page | PublicPage,
        call: Call,
        serve: Awaitable[web.StreamResponse],
        request: UserRequest | None = None,
    ) -> web.StreamResponse:
        """Return the page, or a page about its error; inside the layout if the user is known."""
        try:
            return await serve
        except MailwardenError as error:
            return self._error_page(call, error, request)
        except (ConnectionError, web.HTTPException):
            raise
        except Exception:
            log.exception("page_failed", page=page.path)
            return self._error_page(call, InternalError("Internal error. The log of abby has the details."), request)

    async def _serve_visitor(self, page: PublicPage, call: Call) -> web.StreamResponse:
        """Answer a visitor without a login; a form must come from our own site."""
        form = EMPTY
        if call.request.method not in _SAFE_METHODS:
            check_site(call.request)
            form = await read_form(call.request)
        return await page.handler(VisitorRequest(call, form, self._templates))

    async def _serve_user(self, page: Page, call: Call) -> web.StreamResponse:
        """Answer a signed-in user; redirect visitors to the login page."""
        session = await self._sessions.find(call.request.cookies.get(COOKIE, ""))
        if session is None or session.user is None:
            return to_login(call)
        request = self._user_request(call, session, session.user)
        return await self._or_error_page(page, call, self._serve_checked(page, call, request), request)

    async def _serve_checked(self, page: Page, call: Call, request: UserRequest) -> web.StreamResponse:
        """Check the site, the permission and the form, and answer the request."""
        if call.request.method not in _SAFE_METHODS:
            check_site(call.request)
        if not request.may(page.permission):
            raise Forbidden("Your role does not include this. An administrator can change it.")
        if call.request.method in _SAFE_METHODS:
            return await page.handler(request)
        form = await self._checked_form(page, call, request.session)
        try:
            return await page.handler(replace(request, form=form))
        finally:
            form.close()

    async def _checked_form(self, page: Page, call: Call, session: Session) -> Form:
        """Read the form, and reject it without the CSRF token of the session."""
        is_token = _equals(session.csrf)
        if page.body is BodyType.UPLOAD:
            return await read_upload(call.request, self._spool, is_token)
        in_header = call.request.headers.get(CSRF_HEADER)
        if in_header is not None and not is_token(in_header):
            raise forged_form()
        if page.body is BodyType.NOTHING and in_header is not None:
            return EMPTY
        form = await read_form(call.request)
        if in_header is None and not is_token(form.text(CSRF_FIELD)):
            raise forged_form()
        return form

    def _error_page(self, call: Call, error: MailwardenError, request: UserRequest | None = None) -> web.StreamResponse:
        """Return the error as a page, or as a fragment for htmx."""
        status = STATUS_OF.get(type(error), HTTPStatus.INTERNAL_SERVER_ERROR)
        values = {"error": error, "error_status": status, "request_id": call.request_id, "notice": ""}
        if call.request.headers.get("HX-Request") == "true":
            response = self._templates.response("pieces/alert.html", values, status)
        else:
            values |= {"advice": advice_for(status), "back": form_address(call.request)}
            response = self._whole_page(request, values, status)
        for name in ("Retry-After", "Allow"):
            if name in (headers := answer_for(error).headers):
                response.headers[name] = headers[name]
        return response

    def _whole_page(
        self, request: UserRequest | None, values: Mapping[str, object], status: HTTPStatus
    ) -> web.Response:
        """Return the page inside the layout for a user; if the layout fails as well, a page without it."""
        if request is not None:
            try:
                return self._templates.response("error_inside.html", request.values(**values), status)
            except Exception:  # a service of the layout may be down as well: the error is shown all the same
                log.exception("error_page_failed")
        return self._templates.response("error.html", values, status)


async def _form_alone(request: UserRequest) -> web.StreamResponse:
    raise MethodNotAllowed("This address accepts forms only. It has no page of its own.", allowed=["POST"])


def _pages_of_forms(pages: Sequence[Page | PublicPage]) -> Iterator[Page]:
    """Yield a page for each address that accepts forms only: a browser may open it again."""
    shown = {page.path for page in pages if page.method == "GET"}
    for path in dict.fromkeys(page.path for page in pages if isinstance(page, Page) and page.path not in shown):
        yield Page("GET", path, Permission.ACCOUNT, _form_alone)


def advice_for(status: HTTPStatus) -> str:
    """Return what the user can do about an error of this status."""
    if status in ADVICE:
        return ADVICE[status]
    server_error = HTTPStatus.INTERNAL_SERVER_ERROR
    return ADVICE[server_error if status >= server_error else HTTPStatus.BAD_REQUEST]


def form_address(request: web.BaseRequest) -> str:
    """Return the page with the form that was sent, as the browser names it, or an empty string."""
    referer = urlsplit(request.headers.get("Referer", ""))
    if request.method in _SAFE_METHODS or referer.netloc != request.host or referer.path == request.path:
        return ""
    address = referer._replace(scheme="", netloc="", fragment="").geturl()
    return address if safe_return_path(address) == address else ""


def check_site(request: web.BaseRequest) -> None:
    """Reject requests that another site makes a browser send, by Sec-Fetch-Site and Origin."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None and site not in _SAME_SITE:
        raise forged_form()
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.host:
        raise forged_form()


def to_login(call: Call) -> web.StreamResponse:
    """Redirect to the login page, and afterwards back to the requested page.

    After a POST the login page states that the action was not performed.
    """
    request = call.request
    in_part = request.headers.get("HX-Request") == "true"
    if request.method in _SAFE_METHODS:
        asked = {} if in_part else {"next": request.path_qs}
    else:
        asked = {DONE: "signed-out" if request.path == SIGN_OUT else "not-done"}
    address = f"{LOGIN}?{urlencode(asked)}" if asked else LOGIN
    if in_part:
        return web.Response(status=HTTPStatus.UNAUTHORIZED, headers={**HEADERS, "HX-Redirect": address})
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={**HEADERS, "Location": address})


def safe_return_path(wanted: str) -> str:
    """Return the page to open after login, or the dashboard if the path is not one of the console."""
    parts = urlsplit(wanted)
    inside = parts.path.startswith(PREFIX + "/") and not parts.path.startswith((LOGIN, SIGN_OUT))
    if parts.scheme or parts.netloc or not inside or "\\" in wanted or not wanted.isprintable():
        return PREFIX + "/"
    return wanted


def _equals(token: str) -> Callable[[str], bool]:
    return lambda given: equal(given.encode(), token.encode())


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
