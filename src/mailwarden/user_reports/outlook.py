"""The Outlook add-in for user reports: its manifest, its page and its icons, served without a login.

The page opens a new mail to the report address with the selected message attached; the user sends it. So abby receives
nothing from the add-in: the report arrives, and its reporter is verified, like every other mail to that address.

Security: everything here is public and has no data but the report address and abby's own URL. The page loads Office.js
from Microsoft, as Office requires of every add-in, and no other page of abby may. It connects to nothing of ours.
"""

from importlib.resources import files
from string import Template
from uuid import NAMESPACE_URL, uuid5
from xml.sax.saxutils import escape

from aiohttp import web

from mailwarden import __version__
from mailwarden.serving.http_app import Call, Handler, Route
from mailwarden.user_reports.settings import OutlookConfig

PREFIX = "/outlook"
OFFICE = "https://appsforoffice.microsoft.com"
# The sites and programs that show the page of an add-in in a frame.
FRAMES = (
    "https://outlook.office.com https://outlook.office365.com https://outlook.cloud.microsoft https://outlook.live.com "
    "https://*.office.com https://*.officeapps.live.com"
)
POLICY = (
    f"default-src 'none'; script-src 'self' {OFFICE}; style-src 'self'; img-src 'self'; connect-src {OFFICE}; "
    f"form-action 'none'; base-uri 'none'; frame-ancestors {FRAMES}"
)
SIZES = (16, 32, 64, 80, 128)  # of the icons, in pixels
_HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}
_FILES = files("mailwarden.user_reports").joinpath("outlook_files")


class OutlookAddIn:
    def __init__(self, settings: OutlookConfig, public_url: str) -> None:
        self._settings = settings
        self._site = public_url.rstrip("/")

    def routes(self) -> list[Route]:
        """Return the routes; none if the add-in is not configured."""
        if not self._settings.report_address:
            return []
        page = _read("report.html").replace(b"$address", escape(self._settings.report_address).encode())
        served = {
            "manifest.xml": (self.manifest(), "text/xml"),
            "report.html": (page, "text/html"),
            "report.js": (_read("report.js"), "text/javascript"),
            "report.css": (_read("report.css"), "text/css"),
            **{f"icon-{size}.png": (_read(f"icon-{size}.png"), "image/png") for size in SIZES},
        }
        return [Route("GET", f"{PREFIX}/{name}", _answer(body, kind)) for name, (body, kind) in served.items()]

    def manifest(self) -> bytes:
        """Return the manifest for this deployment; its id stays the same as long as URL and address do."""
        settings = self._settings
        url = self._site + PREFIX
        values = {
            "id": str(uuid5(NAMESPACE_URL, f"{url} {settings.report_address.lower()}")),
            "version": ".".join([*__version__.split(".")[:3], "0"]),
            "provider": escape(settings.provider, {'"': "&quot;"}),
            "url": escape(url, {'"': "&quot;"}),
            "site": escape(self._site),
        }
        return Template(_read("manifest.xml").decode()).substitute(values).encode()


def _read(name: str) -> bytes:
    return _FILES.joinpath(name).read_bytes()


def _answer(body: bytes, kind: str) -> Handler:
    charset = None if kind == "image/png" else "utf-8"

    async def answer(_: Call) -> web.StreamResponse:
        return web.Response(body=body, content_type=kind, charset=charset, headers=_HEADERS)

    return answer
