"""Renders templates with the security headers of every page, serves static files, and counts policy violations.

Static files are kept in memory and served under their digest, so that browsers can cache them. The
Content-Security-Policy allows images from our own server only. Tabler's style sheet embeds a few images as `data:`
URLs; they are extracted here and served as files, so that the policy stays strict.

Security: pages show text of hostile messages. Every template escapes every value, no value is marked as safe, and
the Content-Security-Policy allows our own files only, as a second line of defence. Violation reports need no login:
their body has a size limit, and only the name of a known directive is counted and logged.
"""

import asyncio
import gzip
import hashlib
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import msgspec
from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined, nodes
from msgspec import Struct

from mailwarden.console.language import (
    Languages,
    counted,
    current_language,
    day_text,
    decimal_text,
    gettext,
    line_time,
    list_time,
    moment_text,
    ngettext,
    npgettext,
    number_text,
    pgettext,
    sentence_text,
    with_times,
    word_text,
)
from mailwarden.console.policy_texts import place_in_language, rule_in_language
from mailwarden.console.services import StatusView
from mailwarden.console.texts import WORDS, file_size, moment_value, role_text, script_texts, visible
from mailwarden.errors import BadRequest, NotFound, PayloadTooLarge
from mailwarden.message.urls import defang
from mailwarden.serving.http_app import Call, Route
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics

TEMPLATE_FOLDER = Path(__file__).parent / "templates"
ASSET_FOLDER = Path(__file__).parent / "static"
ASSET_PREFIX = "/console/static"
CACHE_CONTROL = "public, max-age=31536000, immutable"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".png": "image/png"}
_DRAWING = re.compile(r'url\("data:image/svg\+xml,([^"]*)"\)')
_SOURCE_MAP = re.compile(r"/\*# sourceMappingURL=[^*]*\*/")
REPORTS = "/console/csp-report"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        f"report-uri {REPORTS}",
    )
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
MAX_REPORT = 16_384
REPORT_SECONDS = 5.0
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
        "require-trusted-types-for",
        "sandbox",
        "script-src",
        "script-src-attr",
        "script-src-elem",
        "style-src",
        "style-src-attr",
        "style-src-elem",
        "trusted-types",
        "worker-src",
    ]
)

log = get_logger("console.reports")


class Asset(Struct, frozen=True):
    name: str
    content: bytes
    packed: bytes
    media_type: str

    @property
    def address(self) -> str:
        return f"{ASSET_PREFIX}/{hashlib.sha256(self.content).hexdigest()[:12]}/{self.name}"


class Assets:
    """Static files by the name that templates use."""

    def __init__(self, folder: Path = ASSET_FOLDER) -> None:
        self._by_name: dict[str, Asset] = {}
        self._by_address: dict[str, Asset] = {}
        for path in sorted(folder.rglob("*")):
            if path.suffix in _TYPES:
                self._add(path.name, self._read(path), _TYPES[path.suffix])

    def address(self, name: str) -> str:
        """Return the URL path of a file; an unknown name is a bug in a template."""
        return self._by_name[name].address

    def content(self, name: str) -> bytes:
        return self._by_name[name].content

    def find(self, address: str) -> Asset:
        """Return the file served at a URL path, or raise NotFound."""
        asset = self._by_address.get(address)
        if asset is None:
            raise NotFound("There is no such file.")
        return asset

    def route(self) -> Route:
        return Route("GET", ASSET_PREFIX + "/{digest}/{name}", self._show, quiet=True)

    async def _show(self, call: Call) -> web.StreamResponse:
        asset = self.find(call.request.path)
        headers = {
            "Content-Type": f"{asset.media_type}; charset=utf-8",
            "Cache-Control": CACHE_CONTROL,
            "Vary": "Accept-Encoding",
        }
        if "gzip" in call.request.headers.get("Accept-Encoding", ""):
            return web.Response(body=asset.packed, headers={**headers, "Content-Encoding": "gzip"})
        return web.Response(body=asset.content, headers=headers)

    def _read(self, path: Path) -> bytes:
        content = path.read_bytes()
        return self._without_drawings(content.decode()).encode() if path.suffix == ".css" else content

    def _without_drawings(self, style: str) -> str:
        def take_out(found: re.Match[str]) -> str:
            drawing = unquote(found.group(1)).encode()
            name = f"{hashlib.sha256(drawing).hexdigest()[:12]}.svg"
            if name not in self._by_name:
                self._add(name, drawing, _TYPES[".svg"])
            return f'url("{self.address(name)}")'

        return _DRAWING.sub(take_out, _SOURCE_MAP.sub("", style))

    def _add(self, name: str, content: bytes, media_type: str) -> None:
        asset = Asset(name, content, gzip.compress(content, mtime=0), media_type)
        self._by_name[name] = asset
        self._by_address[asset.address] = asset


class Templates:
    """The templates, loaded once."""

    def __init__(
        self, assets: Assets, status: Callable[[], StatusView], languages: Languages, *, demo: bool = False
    ) -> None:
        self.languages = languages
        self._environment = Environment(
            loader=FileSystemLoader(TEMPLATE_FOLDER),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
            extensions=["jinja2.ext.i18n"],
        )
        self._environment.policies["ext.i18n.trimmed"] = True
        self._environment.install_gettext_callables(  # type: ignore[attr-defined]  # the extension adds it
            gettext, ngettext, newstyle=True, pgettext=pgettext, npgettext=npgettext
        )
        self._environment.globals.update(
            asset=assets.address,
            words=WORDS,
            now=_now,
            status=status,
            demo=demo,
            language=current_language,
            languages=languages,
            counted=counted,
            role_text=role_text,
            script_texts=script_texts,
        )
        self._environment.filters.update(
            moment=moment_text,
            day=day_text,
            line_time=line_time,
            list_time=list_time,
            times=with_times,
            number=number_text,
            decimal=decimal_text,
            word=word_text,
            rule_texts=rule_in_language,
            sentence=sentence_text,
            moment_value=moment_value,
            defang=defang,
            file_size=file_size,
            visible=visible,
            place=place_in_language,
        )

    def parse(self, source: str) -> nodes.Template:
        """Return the syntax tree of a template."""
        return self._environment.parse(source)

    def text(self, template: str, values: Mapping[str, object]) -> str:
        """Return the rendered template as text."""
        return self._environment.get_template(template).render(values)

    def response(self, template: str, values: Mapping[str, object], status: int = 200) -> web.Response:
        """Return the rendered template as a response."""
        return web.Response(
            text=self.text(template, values), status=status, content_type="text/html", headers=dict(HEADERS)
        )


def _now() -> datetime:
    return datetime.now(UTC)


class _ReportBody(msgspec.Struct, frozen=True, rename="kebab"):
    violated_directive: str = ""
    effective_directive: str = ""


class _Report(msgspec.Struct, frozen=True, rename="kebab"):
    csp_report: _ReportBody


class CspReports:
    def __init__(self, metrics: Metrics) -> None:
        self._counted = metrics.counter(
            "csp_reports", "Content-Security-Policy violations that browsers reported.", "directive"
        )

    def route(self) -> Route:
        return Route("POST", REPORTS, self._take, quiet=True)

    async def _take(self, call: Call) -> web.StreamResponse:
        try:
            async with asyncio.timeout(REPORT_SECONDS):
                raw = await call.request.content.read(MAX_REPORT + 1)
            if len(raw) > MAX_REPORT:
                raise PayloadTooLarge("A report has at most 16 KiB.")
            body = msgspec.json.decode(raw, type=_Report).csp_report
        except (msgspec.MsgspecError, TimeoutError, UnicodeDecodeError):
            raise BadRequest("The body is not a policy violation report.") from None
        # Older browsers send the directive with its sources.
        named = (body.effective_directive or body.violated_directive).partition(" ")[0]
        directive = named if named in _DIRECTIVES else OTHER
        self._counted.labels(directive).inc()
        log.warning("policy_violation", directive=directive)
        return web.Response(status=204)
