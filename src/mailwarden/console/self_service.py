"""The page behind a digest link: one held message and a release button, without login, cookies and scripts.

GET changes nothing, since mail scanners follow links. The token in the URL is the only credential, so there is no
session that another site could abuse.

Security: shows a hostile sender and subject without a login. Both are defanged and escaped, and the policy allows
one style sheet only. The page of an invalid link never states why it is invalid.
"""

from http import HTTPStatus

from aiohttp import web

from mailwarden.console.language import N_
from mailwarden.console.templating import HEADERS, REPORTS, Templates
from mailwarden.errors import InternalError, MailwardenError
from mailwarden.model.scope import Actor
from mailwarden.quarantine.digest import DigestLine, HeldForRecipient
from mailwarden.quarantine.digest_links import LINK_PATH, DigestLinkService
from mailwarden.quarantine.model import State
from mailwarden.serving.errors import STATUS_OF, answer_for
from mailwarden.serving.http_app import Call, Handler, Route
from mailwarden.telemetry.logs import get_logger

POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    f"base-uri 'none'; report-uri {REPORTS}"
)
# The URL contains a secret: browsers must not send it as a referrer and must not cache the page.
_HEADERS = {**HEADERS, "Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}

log = get_logger("console.self_service")


class SelfServicePage:
    def __init__(self, service: DigestLinkService, templates: Templates) -> None:
        self._service = service
        self._templates = templates

    def routes(self) -> list[Route]:
        path = LINK_PATH + "/{token}"
        return [Route("GET", path, self._opened(self.show)), Route("POST", path, self._opened(self.release))]

    async def show(self, call: Call) -> web.Response:
        found = await self._service.find(call.variables["token"], _caller(call))
        if found is None:
            return self._unknown_link()
        return self._render(found, "held" if found.state is State.HELD else "before")

    async def release(self, call: Call) -> web.Response:
        """Release the message; the body of the request is ignored."""
        found = await self._service.release(call.variables["token"], _caller(call))
        if found is None:
            return self._unknown_link()
        return self._render(found, "done" if found.state is State.HELD else "before")

    def _opened(self, handler: Handler) -> Handler:
        async def answer(call: Call) -> web.StreamResponse:
            self._templates.languages.use_for(call.request)
            try:
                return await handler(call)
            except MailwardenError as error:
                return self._error_page(error)
            except (ConnectionError, web.HTTPException):
                raise
            except Exception:
                log.exception("page_failed", page=LINK_PATH)
                return self._error_page(InternalError("Internal error."))

        return answer

    def _render(self, found: HeldForRecipient, stage: str) -> web.Response:
        return self._answer(200, stage=stage, shown=DigestLine.of(found.message), sentence="")

    def _unknown_link(self) -> web.Response:
        sentence = N_("This link is invalid or has expired. If you expect a message, ask your administrator.")
        return self._answer(HTTPStatus.NOT_FOUND, stage="nothing", shown=None, sentence=sentence)

    def _error_page(self, error: MailwardenError) -> web.Response:
        status = STATUS_OF.get(type(error), HTTPStatus.INTERNAL_SERVER_ERROR)
        response = self._answer(status, stage="failed", shown=None, sentence=error.message)
        if "Retry-After" in (headers := answer_for(error).headers):
            response.headers["Retry-After"] = headers["Retry-After"]
        return response

    def _answer(self, status: int, **values: object) -> web.Response:
        response = self._templates.response("self_service.html", values, status)
        response.headers.update(_HEADERS)
        return response


def _caller(call: Call) -> Actor:
    """Return the actor for the audit log; the link names the recipient."""
    return Actor("digest", call.address, call.request_id)
