"""Renders templates with escaping and sets the security headers of every page.

Security: pages show text of hostile messages. Every template escapes every value, no value is marked as safe, and
the Content-Security-Policy allows our own files only, as a second line of defence.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mailwarden.console.assets import Assets
from mailwarden.console.texts import NOTICES, WORDS, file_size, moment_text, moment_value, visible
from mailwarden.message.urls import defang
from mailwarden.model.place import place_text

FOLDER = Path(__file__).parent / "templates"
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


class Templates:
    """The templates, loaded once."""

    def __init__(self, assets: Assets) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(FOLDER),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.globals.update(asset=assets.address, words=WORDS, notices=NOTICES, now=_now)
        self._environment.filters.update(
            moment=moment_text,
            moment_value=moment_value,
            defang=defang,
            file_size=file_size,
            visible=visible,
            place=place_text,
        )

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
