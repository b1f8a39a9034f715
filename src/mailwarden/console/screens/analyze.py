"""The Analyze screen: analyzes an uploaded message like one from the border MTA and shows the progress.

The response is streamed: the head and an empty table at once, a row for each finished analyzer, then the content of
the message's page. It needs no script. The safe preview shows an uploaded message in a sandboxed frame.

Security: the preview shows hostile content. A separate process makes the document (pipeline/previews), and the response
has a Content-Security-Policy of its own, which allows one style sheet of ours and nothing else. Nothing is stored.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec
from aiohttp import web

from mailwarden.console.auth import BodyType, Page
from mailwarden.console.language import N_, _, sentence_text
from mailwarden.console.message_view import view_of
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, preview_response
from mailwarden.console.screens.message import shown
from mailwarden.console.services import Analyses, Step
from mailwarden.errors import EmptyEmail, InternalError, MailwardenError, SchemaViolation
from mailwarden.hop.records import AnalyzerDone
from mailwarden.message.addresses import HEAD, correspondents
from mailwarden.message.preview import document_of, notice
from mailwarden.model.record import FinishedRequest
from mailwarden.pipeline.previews import Previews
from mailwarden.policy.rules import Policy
from mailwarden.serving.errors import STATUS_OF
from mailwarden.serving.spool import Spooled
from mailwarden.wire.scanning import ScanParameters, read_parameters

READER_SECONDS = 30.0

_FIELDS = {
    "/borderMtaData/envelopeFrom": N_("the sender"),
    "/borderMtaData/envelopeRecipients": N_("the recipients"),
    "/borderMtaData/remoteAddress": N_("the sending address"),
    "/borderMtaData/senderHelo": N_("the HELO name"),
}


class AnalyzeScreen:
    def __init__(self, analyses: Analyses, policy: Policy) -> None:
        self._analyses = analyses
        self._policy = policy

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/analyze", Permission.ANALYZE, self.show),
            Page("POST", "/analyze", Permission.ANALYZE, self.analyze, BodyType.UPLOAD),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        return request.render("analyze/index.html", tenants=tenants_for(request), mistake="")

    async def analyze(self, request: UserRequest) -> web.StreamResponse:
        """Analyze the message; show an error on the form if the scan cannot start."""
        stored = not request.form.ticked("unstored")
        try:
            message = uploaded_message(request)
            if message is None:
                raise EmptyEmail("Choose a file, or paste the source of a message.")
            parameters = parameters_of(request, message)
            steps = self._analyses.watch(
                request.scope, message, parameters, stored=stored, request_id=request.call.request_id
            )
            async with aclosing(steps):
                first = await anext(steps)
                return await self._stream(request, first, steps, stored=stored)
        except MailwardenError as error:
            status = STATUS_OF.get(type(error), 500)
            values = {"tenants": tenants_for(request), "mistake": sentence_for(error)}
            return request.render("analyze/index.html", values, status=status)

    async def _stream(
        self, request: UserRequest, first: Step, steps: AsyncGenerator[Step, None], *, stored: bool
    ) -> web.StreamResponse:
        """Stream the page in pieces; later errors are shown on the page."""
        rows, result = secrets.token_hex(16), secrets.token_hex(16)  # markers that split the page into pieces
        page = request.templates.text("analyze/run.html", request.values(rows=rows, result=result, stored=stored))
        before, _, rest = page.partition(rows)
        between, _, after = rest.partition(result)
        response = await request.begin_stream()
        await _write(response, before.encode())
        step: Step | MailwardenError = first
        while isinstance(step, AnalyzerDone):
            await _write(response, _filled(request, "analyze/row.html", step=step))
            step = await _next(steps)
        await _write(response, between.encode())
        if isinstance(step, FinishedRequest):
            values = shown(request, view_of(step, self._policy), stored=stored)
            await _write(response, _filled(request, "analyze/result.html", **values))
        else:
            await _write(response, _filled(request, "analyze/failure.html", error=step))
        await _write(response, after.encode())
        await response.write_eof()
        return response


async def _next(steps: AsyncGenerator[Step, None]) -> Step | MailwardenError:
    """Return the next step, or an error to show on the page."""
    try:
        return await anext(steps)
    except MailwardenError as error:
        return error
    except StopAsyncIteration:
        return InternalError("The analysis ended without a result.")


async def _write(response: web.StreamResponse, piece: bytes) -> None:
    """Write a piece of the page; close the connection if the client stops reading, to free the scan slot."""
    try:
        async with asyncio.timeout(READER_SECONDS):
            await response.write(piece)
    except TimeoutError:
        raise ConnectionResetError("The reader of the page stopped reading.") from None


def _filled(request: UserRequest, template: str, **values: object) -> bytes:
    return request.templates.text(template, request.values(**values)).encode()


def tenants_for(request: UserRequest) -> list[tuple[str, str]]:
    """Return the tenants to choose from; a user of one tenant has one choice."""
    tenants = [(str(tenant.uid), tenant.name) for tenant in request.tenants]
    if request.scope.tenants is None or len(tenants) > 1:
        return [("", _("By the recipients' domains")), *tenants]
    return tenants


def parameters_of(request: UserRequest, message: Spooled) -> ScanParameters:
    """Return the envelope of the form, validated like the API's; empty fields come from the message headers."""
    form = request.form
    recipients = [line.strip() for line in form.raw("recipients").replace(",", "\n").splitlines() if line.strip()]
    sender = form.text("sender")
    if not sender or not recipients:
        header_sender, header_recipients = correspondents(message.window(0, min(HEAD, message.size)).data())
        sender = sender or header_sender
        recipients = recipients or [*header_recipients]
    if not recipients:
        raise SchemaViolation("Name a recipient: the message itself names none.")
    border: dict[str, object] = {"envelopeFrom": sender, "envelopeRecipients": recipients}
    border |= {"remoteAddress": form.text("address")} if form.text("address") else {}
    border |= {"senderHelo": form.text("helo")} if form.text("helo") else {}
    record: dict[str, object] = {"borderMtaData": border}
    record |= {"tenantUid": form.text("tenant")} if form.text("tenant") else {}
    return read_parameters(msgspec.json.encode(record))


def sentence_for(error: MailwardenError) -> str:
    """Return the error with the label of the form field that caused it."""
    if not isinstance(error, SchemaViolation) or not error.details:
        return error.message
    detail = error.details[0]
    pointer = str(detail.get("pointer", ""))
    name = next((words for start, words in _FIELDS.items() if pointer.startswith(start)), N_("the form"))
    problem = sentence_text(str(detail.get("problem", error.message)))
    return _("Look at %(name)s: %(problem)s.") % {"name": _(name), "problem": problem}


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
        return preview_response(document_of(notice(_("The message is shown here."))))

    async def show(self, request: UserRequest) -> web.StreamResponse:
        """Show the uploaded message; reject another one if the form names a SHA-256."""
        message = uploaded_message(request)
        if message is None:
            return preview_response(document_of(notice(_("No message was given."))))
        preview = await self._previews.of(message)
        meant = request.form.text("sha256")
        if meant and preview.sha256 and preview.sha256 != meant:
            return preview_response(
                document_of(notice(_("This is another message: its SHA-256 is %(hash)s.") % {"hash": preview.sha256}))
            )
        return preview_response(preview.document)


def uploaded_message(request: UserRequest) -> Spooled | None:
    """Return the uploaded file, or the pasted text with CRLF line ends."""
    if (file := request.form.file("message")) is not None:
        return file
    text = request.form.raw("text")
    if not text.strip():
        return None
    return Spooled.of(text.replace("\r\n", "\n").replace("\n", "\r\n").encode("utf-8", "replace"))
