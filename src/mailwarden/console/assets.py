"""The console's static files, kept in memory and served under their digest, so that browsers can cache them.

The Content-Security-Policy allows images from our own server only. Tabler's style sheet embeds a few images as
`data:` URLs; they are extracted here and served as files, so that the policy stays strict.
"""

import gzip
import hashlib
import re
from pathlib import Path
from urllib.parse import unquote

from aiohttp import web
from msgspec import Struct

from mailwarden.errors import NotFound
from mailwarden.serving.http_app import Call, Route

FOLDER = Path(__file__).parent / "static"
PREFIX = "/console/static"
KEPT = "public, max-age=31536000, immutable"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".png": "image/png"}
_DRAWING = re.compile(r'url\("data:image/svg\+xml,([^"]*)"\)')
_SOURCE_MAP = re.compile(r"/\*# sourceMappingURL=[^*]*\*/")


class Asset(Struct, frozen=True):
    name: str
    content: bytes
    packed: bytes
    media_type: str

    @property
    def address(self) -> str:
        return f"{PREFIX}/{hashlib.sha256(self.content).hexdigest()[:12]}/{self.name}"


class Assets:
    """Static files by the name that templates use."""

    def __init__(self, folder: Path = FOLDER) -> None:
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
        return Route("GET", PREFIX + "/{digest}/{name}", self._show, quiet=True)

    async def _show(self, call: Call) -> web.StreamResponse:
        asset = self.find(call.request.path)
        headers = {
            "Content-Type": f"{asset.media_type}; charset=utf-8",
            "Cache-Control": KEPT,
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
