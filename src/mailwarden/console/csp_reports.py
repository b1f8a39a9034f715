"""Counts and logs the Content-Security-Policy violations that browsers report.

Security: needs no login. The body has a size limit, and only the name of a known directive is counted and logged.
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
# The directives that browsers know. Other names come from the caller: they are counted together as OTHER and not
# logged, since every metric label is kept in memory.
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
        self._counted = metrics.counter(
            "csp_reports", "Content-Security-Policy violations that browsers reported.", "directive"
        )

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
            raise BadRequest("The body is not a policy violation report.") from None
        # Older browsers send the directive with its sources.
        named = (body.effective_directive or body.violated_directive).partition(" ")[0]
        directive = named if named in _DIRECTIVES else OTHER
        self._counted.labels(directive).inc()
        log.warning("policy_violation", directive=directive)
        return web.Response(status=204)
