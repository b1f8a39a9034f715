"""The safe preview: shows an uploaded message in a sandboxed frame and stores nothing of it.

Security: shows hostile content. A separate process makes the document (analysis/previews), and the response
carries its own Content-Security-Policy, which allows one style sheet of ours and nothing else.
"""

from collections.abc import Sequence

from aiohttp import web

from mailwarden.analysis.previews import Previews
from mailwarden.console.auth import BodyType, Page
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest
from mailwarden.message.preview import HEADERS, document_of, notice
from mailwarden.serving.spool import Spooled


class PreviewScreen:
    def __init__(self, previews: Previews) -> None:
        self._previews = previews

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/preview", Permission.MESSAGES, self.show_nothing),
            Page("POST", "/preview", Permission.MESSAGES, self.show, BodyType.UPLOAD),
        ]

    async def show_nothing(self, request: UserRequest) -> web.StreamResponse:
        """Show a hint while the frame is empty."""
        del request
        return framed(document_of(notice("The message is shown here.")))

    async def show(self, request: UserRequest) -> web.StreamResponse:
        """Show the uploaded message; reject another one if the form names a SHA-256."""
        message = uploaded_message(request)
        if message is None:
            return framed(document_of(notice("No message was given.")))
        preview = await self._previews.of(message)
        meant = request.form.text("sha256")
        if meant and preview.sha256 and preview.sha256 != meant:
            return framed(document_of(notice(f"This is another message: its SHA-256 is {preview.sha256}.")))
        return framed(preview.document)


def uploaded_message(request: UserRequest) -> Spooled | None:
    """Return the uploaded file, or the pasted text with CRLF line ends."""
    if (file := request.form.file("message")) is not None:
        return file
    text = request.form.raw("text")
    if not text.strip():
        return None
    return Spooled.of(text.replace("\r\n", "\n").replace("\n", "\r\n").encode("utf-8", "replace"))


def framed(document: str) -> web.Response:
    return web.Response(text=document, headers=HEADERS)
