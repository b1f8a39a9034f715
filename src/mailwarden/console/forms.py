"""Reads submitted forms: fields in memory under a limit, large files spooled to disk.

Security: reads hostile bytes. Every size has a limit, and nothing of a multipart body is kept before its CSRF token.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import parse_qsl

from aiohttp import web

from mailwarden.errors import BadRequest, Forbidden, PayloadTooLarge, UnsupportedMediaType
from mailwarden.serving.form_data import FormDataReader, Part
from mailwarden.serving.spool import Spooled, SpoolWriter
from mailwarden.serving.uploads import BodyClock, check_upload_head, send_continue, too_large

CSRF_FIELD = "csrf"
CSRF_HEADER = "X-CSRF-Token"
MAX_FORM = 4_194_304
MAX_FIELDS = 20_000
MAX_FIELD_BYTES = 4_194_304
BODY_TIMEOUT_MS = 30_000
_FORM_TYPE = "application/x-www-form-urlencoded"


class Form:
    """A submitted form. A missing field reads as empty, since browsers omit unticked boxes."""

    def __init__(self, fields: Mapping[str, Sequence[str]], files: Mapping[str, Spooled] | None = None) -> None:
        self._fields = fields
        self._files = files or {}

    def text(self, name: str) -> str:
        """Return one line of text, trimmed."""
        return next(iter(self._fields.get(name, ())), "").strip()

    def raw(self, name: str) -> str:
        """Return the text untrimmed: a password, or several lines."""
        return next(iter(self._fields.get(name, ())), "")

    def many(self, name: str) -> Sequence[str]:
        return tuple(self._fields.get(name, ()))

    def ticked(self, name: str) -> bool:
        return bool(self.text(name))

    def file(self, name: str) -> Spooled | None:
        """Return an uploaded file, or None; browsers send an empty file if none was chosen."""
        found = self._files.get(name)
        return found if found is not None and found.size else None

    def close(self) -> None:
        for file in self._files.values():
            file.close()


EMPTY = Form({})


async def read_form(request: web.BaseRequest) -> Form:
    """Read a form without files."""
    if (request.content_length or 0) > MAX_FORM:
        raise too_large(MAX_FORM)
    if request.content_type != _FORM_TYPE:
        raise UnsupportedMediaType(f"This page takes a form: {_FORM_TYPE}.")
    await send_continue(request)
    chunks: list[bytes] = []
    async with BodyClock(BODY_TIMEOUT_MS, MAX_FORM) as clock:
        while chunk := await clock.next_chunk(request):
            chunks.append(chunk)
    try:
        pairs = parse_qsl(
            b"".join(chunks).decode("utf-8"),
            keep_blank_values=True,
            strict_parsing=bool(chunks),
            errors="strict",
            max_num_fields=MAX_FIELDS,
        )
    except ValueError:
        raise BadRequest("The form cannot be read.") from None
    return Form(_gathered(pairs))


async def read_upload(request: web.BaseRequest, spool: Path, is_token: Callable[[str], bool]) -> Form:
    """Read a form with files, which the caller closes; reject it if its first part is not the CSRF token."""
    reader = _UploadReader(FormDataReader(check_upload_head(request)), spool, is_token)
    await send_continue(request)
    try:
        async with BodyClock(BODY_TIMEOUT_MS) as clock:
            while chunk := await clock.next_chunk(request):
                await reader.take(chunk)
        return reader.finish()
    finally:
        reader.discard()


class _UploadReader:
    """Splits a multipart body into fields and files; a part with a file name is a file."""

    def __init__(self, reader: FormDataReader, spool: Path, is_token: Callable[[str], bool]) -> None:
        self._reader = reader
        self._spool = spool
        self._is_token = is_token
        self._trusted = False
        self._current: Part | None = None
        self._bytes: list[bytes] = []
        self._room = MAX_FIELD_BYTES
        self._fields: list[tuple[str, str]] = []
        self._files: dict[str, Spooled] = {}
        self._writer: SpoolWriter | None = None

    async def take(self, chunk: bytes) -> None:
        for event in self._reader.feed(chunk):
            if isinstance(event, Part):
                self._begin(event)
            elif event is None:
                await self._end()
            elif self._writer is not None:
                await self._writer.write(event)
            else:
                self._room -= len(event)
                if self._room < 0:
                    raise PayloadTooLarge(f"The fields of the form are larger than {MAX_FIELD_BYTES} bytes.")
                self._bytes.append(event)

    def finish(self) -> Form:
        self._reader.finish()
        files, self._files = self._files, {}
        return Form(_gathered(self._fields), files)

    def discard(self) -> None:
        if self._writer is not None:
            self._writer.discard()
        for file in self._files.values():
            file.close()

    def _begin(self, part: Part) -> None:
        if not self._trusted and part.name != CSRF_FIELD:
            raise forged_form()
        if len(self._fields) + len(self._files) >= MAX_FIELDS or part.name in self._files:
            raise BadRequest("The form has too many parts.")
        self._current, self._bytes = part, []
        self._writer = SpoolWriter(self._spool) if part.is_file and self._trusted else None

    async def _end(self) -> None:
        assert self._current is not None
        if self._writer is not None:
            writer, self._writer = self._writer, None
            self._files[self._current.name] = await writer.finish()
            return
        try:
            text = b"".join(self._bytes).decode("utf-8")
        except UnicodeDecodeError:
            raise BadRequest("A field of the form is not UTF-8.") from None
        if not self._trusted:
            self._trusted = self._is_token(text)
            if not self._trusted:
                raise forged_form()
        self._fields.append((self._current.name, text))


def forged_form() -> Forbidden:
    return Forbidden("The form has expired or comes from another site. Reload the page and submit it again.")


def _gathered(pairs: Iterator[tuple[str, str]] | Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value.replace("\x00", "\N{REPLACEMENT CHARACTER}"))
    return fields
