"""Receives the browsers' reports of what the Content-Security-Policy stopped, counts and logs them.

Security: anybody may send one. It is bounded, nothing of it is kept but the name of the directive, if it is one.
"""

import asyncio

import msgspec
from aiohttp import web

from mailwarden.console.templating import REPORTS
from mailwarden.errors import BadRequest, PayloadTooLarge
from mailwarden.serving.http_app import Call, Route
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics

MAX_REPORT = 16_384
PATIENCE = 5.0
OTHER = "other"
# Those that browsers have for what a page may load or do. Any other word is the caller's own: it is neither counted
# apart, as each would be kept for good, nor logged.
_DIRECTIVES = frozenset(
    [
        "base-uri",
        "child-src",
        "connect-src",
        "default-src",
        "font-src",
        "form-action",
        "frame-ancestors",
        "frame-src",
        "img-src",
        "manifest-src",
        "media-src",
        "navigate-to",
        "object-src",
        "prefetch-src",
        "require-checked_session-types-for",
        "sandbox",
        "script-src",
        "script-src-attr",
        "script-src-elem",
        "style-src",
        "style-src-attr",
        "style-src-elem",
        "checked_session-types",
        "worker-src",
    ]
)

log = get_logger("console.reports")


class Body(msgspec.Struct, frozen=True, rename="kebab"):
    violated_directive: str = ""
    effective_directive: str = ""


class Report(msgspec.Struct, frozen=True, rename="kebab"):
    csp_report: Body


class CspReports:
    def __init__(self, metrics: Metrics) -> None:
        self._counted = metrics.counter("csp_reports", "What the console's policy stopped in browsers.", "directive")

    def route(self) -> Route:
        return Route("POST", REPORTS, self._take, quiet=True)

    async def _take(self, call: Call) -> web.StreamResponse:
        try:
            async with asyncio.timeout(PATIENCE):
                raw = await call.request.content.read(MAX_REPORT + 1)
            if len(raw) > MAX_REPORT:
                raise PayloadTooLarge("A report has at most 16 KiB.")
            body = msgspec.json.decode(raw, type=Report).csp_report
        except (msgspec.MsgspecError, TimeoutError, UnicodeDecodeError):
            raise BadRequest("This is no report of a policy violation.") from None
        # Older browsers tell the directive with its sources.
        named = (body.effective_directive or body.violated_directive).partition(" ")[0]
        directive = named if named in _DIRECTIVES else OTHER
        self._counted.labels(directive).inc()
        log.warning("policy_violation", directive=directive)
        return web.Response(status=204)
