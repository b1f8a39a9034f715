"""The safe preview: a message that a person gives, shown in a sandboxed frame; nothing of it is kept.

Security: shows hostile content. The document is made in a process of its own (analysis/previews), and its answer
carries a policy that forbids everything but our one style, whatever the frame list_values it says.
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
        """Fill the frame before there is a message in it."""
        del request
        return framed(document_of(notice("The message is shown here.")))

    async def show(self, request: UserRequest) -> web.StreamResponse:
        """Show the message that was given, if it is the one that is meant."""
        message = uploaded_message(request)
        if message is None:
            return framed(document_of(notice("No message was given.")))
        preview = await self._previews.of(message)
        meant = request.form.text("sha256")
        if meant and preview.sha256 and preview.sha256 != meant:
            return framed(document_of(notice(f"This is another message: its SHA-256 is {preview.sha256}.")))
        return framed(preview.document)


def uploaded_message(request: UserRequest) -> Spooled | None:
    """Return the message of a form: the file, or the text that was pasted, with the line ends of mail."""
    if (file := request.form.file("message")) is not None:
        return file
    text = request.form.raw("text")
    if not text.strip():
        return None
    return Spooled.of(text.replace("\r\n", "\n").replace("\n", "\r\n").encode("utf-8", "replace"))


def framed(document: str) -> web.Response:
    return web.Response(text=document, headers=HEADERS)
