"""The door of the console: who is at it, what they may open, and that a form comes from a page of ours.

Security: the one place that decides. A page is opened in this order: the person, where the form comes from, the right,
the form's token; whatever goes wrong is answered as a page with a sentence.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from http import HTTPStatus
from pathlib import Path
from typing import Protocol
from urllib.parse import urlencode, urlsplit

from aiohttp import web

from mailwarden.access.sessions import COOKIE, Session
from mailwarden.console.forms import CSRF_FIELD, CSRF_HEADER, EMPTY, Form, read_form, read_upload, untrusted
from mailwarden.console.permissions import Right
from mailwarden.console.request import Guest, Tenants, Visit
from mailwarden.console.templating import HEADERS, Templates
from mailwarden.console.texts import DONE
from mailwarden.crypto.mac import equal
from mailwarden.errors import Forbidden, InternalError, MailwardenError
from mailwarden.serving.errors import STATUS_OF, answer_for
from mailwarden.serving.front_door import Call, Handler, Route
from mailwarden.telemetry.logs import get_logger

PREFIX = "/console"

VisitHandler = Callable[[Visit], Awaitable[web.StreamResponse]]
GuestHandler = Callable[[Guest], Awaitable[web.StreamResponse]]


class Takes(Enum):
    """What the body of a request may be."""

    NOTHING = auto()
    FORM = auto()
    UPLOAD = auto()  # multipart/form-data, with files; its first part is the CSRF token


@dataclass(frozen=True, slots=True)
class Page:
    """A page for signed-in people; the path is the part after /console."""

    method: str
    path: str
    right: Right
    handler: VisitHandler = field(repr=False)
    takes: Takes = Takes.FORM
    quiet: bool = False  # asked every few seconds by an open page: no line in the log


@dataclass(frozen=True, slots=True)
class OpenPage:
    """A page for everybody: to sign in, and what is needed for that."""

    method: str
    path: str
    handler: GuestHandler = field(repr=False)


LOGIN = "/console/login"
SIGN_OUT = "/console/logout"
_HARMLESS = ("GET", "HEAD")
_OWN_SITE = ("same-origin", "none")

log = get_logger("console")


class Recognition(Protocol):
    """Knows which session a cookie belongs to: access.Sessions, or a stand-in of a test."""

    async def find(self, value: str) -> Session | None: ...


class Door:
    """Makes routes of pages."""

    def __init__(self, recognition: Recognition, templates: Templates, directory: Tenants, spool: Path) -> None:
        self._recognition = recognition
        self._templates = templates
        self._directory = directory
        self._spool = spool

    def routes(self, pages: Sequence[Page | OpenPage]) -> list[Route]:
        return [
            Route(page.method, PREFIX + page.path, self._open(page), quiet=isinstance(page, Page) and page.quiet)
            for page in pages
        ]

    def _open(self, page: Page | OpenPage) -> Handler:
        async def answer(call: Call) -> web.StreamResponse:
            try:
                if isinstance(page, OpenPage):
                    return await self._welcome(page, call)
                return await self._admit(page, call)
            except MailwardenError as error:
                return self._tell(call, error)
            except (ConnectionError, web.HTTPException):
                raise
            except Exception:
                log.exception("page failed", page=page.path)
                return self._tell(call, InternalError("Something went wrong on our side; the log has it."))

        return answer

    async def _welcome(self, page: OpenPage, call: Call) -> web.StreamResponse:
        """Answer a guest; what a guest sends must come from a page of ours too."""
        form = EMPTY
        if call.request.method not in _HARMLESS:
            check_site(call.request)
            form = await read_form(call.request)
        return await page.handler(Guest(call, form, self._templates))

    async def _admit(self, page: Page, call: Call) -> web.StreamResponse:
        """Answer a person who has signed in; send everybody else to do so."""
        session = await self._recognition.find(call.request.cookies.get(COOKIE, ""))
        if session is None or session.user is None:
            return to_login(call)
        user = session.user
        visit = Visit(call, user, session, EMPTY, self._templates, self._directory)
        if call.request.method not in _HARMLESS:
            check_site(call.request)
        if not visit.may(page.right):
            raise Forbidden("Your role does not include this. An administrator can change it.")
        if call.request.method in _HARMLESS:
            return await page.handler(visit)
        form = await self._trusted_form(page, call, session)
        try:
            return await page.handler(Visit(call, user, session, form, self._templates, self._directory))
        finally:
            form.close()

    async def _trusted_form(self, page: Page, call: Call, session: Session) -> Form:
        """Read the form of a page of ours, which shows by the token of the session."""
        is_token = _compared_with(session.csrf)
        if page.takes is Takes.UPLOAD:
            return await read_upload(call.request, self._spool, is_token)
        in_header = call.request.headers.get(CSRF_HEADER)
        if in_header is not None and not is_token(in_header):
            raise untrusted()
        if page.takes is Takes.NOTHING and in_header is not None:
            return EMPTY
        form = await read_form(call.request)
        if in_header is None and not is_token(form.text(CSRF_FIELD)):
            raise untrusted()
        return form

    def _tell(self, call: Call, error: MailwardenError) -> web.StreamResponse:
        """Return the error as a page, or as the part of one that is to be replaced."""
        status = STATUS_OF.get(type(error), HTTPStatus.INTERNAL_SERVER_ERROR)
        template = "pieces/alert.html" if call.request.headers.get("HX-Request") == "true" else "error.html"
        response = self._templates.response(
            template, {"error": error, "status": status, "request_id": call.request_id, "notice": ""}, status
        )
        for name in ("Retry-After", "Allow"):
            if name in (headers := answer_for(error).headers):
                response.headers[name] = headers[name]
        return response


def check_site(request: web.BaseRequest) -> None:
    """Refuse what another site makes a browser send: the browser itself says where it comes from."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None and site not in _OWN_SITE:
        raise untrusted()
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.host:
        raise untrusted()


def to_login(call: Call) -> web.StreamResponse:
    """Send a browser to the login page, and back afterwards to the page it wanted to read.

    Who sent something is told that it was not done: nothing else on the way would say so.
    """
    request = call.request
    in_part = request.headers.get("HX-Request") == "true"
    if request.method in _HARMLESS:
        asked = {} if in_part else {"next": request.path_qs}
    else:
        asked = {DONE: "signed-out" if request.path == SIGN_OUT else "not-done"}
    address = f"{LOGIN}?{urlencode(asked)}" if asked else LOGIN
    if in_part:
        return web.Response(status=HTTPStatus.UNAUTHORIZED, headers={**HEADERS, "HX-Redirect": address})
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={**HEADERS, "Location": address})


def way_back(wanted: str) -> str:
    """Return where to go after the login: a page of the console, and nothing that only looks like one."""
    parts = urlsplit(wanted)
    inside = parts.path.startswith(PREFIX + "/") and not parts.path.startswith((LOGIN, SIGN_OUT))
    if parts.scheme or parts.netloc or not inside or "\\" in wanted or not wanted.isprintable():
        return PREFIX + "/"
    return wanted


def _compared_with(token: str) -> Callable[[str], bool]:
    return lambda given: equal(given.encode(), token.encode())
