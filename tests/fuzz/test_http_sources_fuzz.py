"""Random calls of the HTTP scan sources are parsed or rejected with an error of the API."""

import json
from types import SimpleNamespace
from typing import Any, cast

from aiohttp import web
from hypothesis import example, given
from hypothesis import strategies as st
from multidict import CIMultiDict

from mailwarden.errors import MailwardenError
from mailwarden.guard.sources.rspamd_api import read_envelope
from mailwarden.guard.sources.stalwart_hook import envelope_of, read_request, rebuild
from tests.samples.stalwart import hook_call

NAMES = st.sampled_from(["From", "Rcpt", "IP", "Helo", "Shm", "Flags", "User"])
TEXTS = st.text(max_size=60) | st.sampled_from(['"a,b"@c.example', "<>", "[::1]:25", "192.0.2.1:25", "a@b,c@d", '"'])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
PLACES = st.sampled_from(
    [
        ("context",), ("context", "stage"), ("context", "client"), ("context", "client", "ip"), ("context", "protocol"),
        ("envelope",), ("envelope", "from"), ("envelope", "to"), ("message",), ("message", "headers"),
        ("message", "contents"),
    ]
)  # fmt: skip


@given(st.lists(st.tuples(NAMES, TEXTS), max_size=8))
def test_headers_make_an_envelope_or_an_error(headers: list[tuple[str, str]]) -> None:
    request = cast("web.BaseRequest", SimpleNamespace(headers=CIMultiDict(headers)))
    try:
        envelope = read_envelope(request)
    except MailwardenError:
        return
    for text in (envelope.sender, *envelope.recipients, envelope.helo or "", envelope.remote_address or ""):
        assert not any(character < " " for character in text)


@given(PLACES, JSON)
def test_a_call_is_read_or_refused(place: tuple[str, ...], value: object) -> None:
    call: dict[str, Any] = hook_call(b"From: a@b.example\r\n\r\ntext\r\n")
    inner = call
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    try:
        request = read_request(json.dumps(call).encode())
        envelope_of(request)
        if request.message is not None:
            rebuild(request.message)
    except MailwardenError:
        return


@given(st.binary(max_size=200))
def test_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        read_request(raw)
    except MailwardenError:
        return


@example([("\n", "")], "")
@example([("\r\n", "")], "From: eve@evil.example")
@example([("Subject", " hi\r\n\r\n")], "")
@given(st.lists(st.tuples(st.text(max_size=12), st.text(max_size=20)), max_size=5), st.text(max_size=50))
def test_no_field_ends_the_header_block(fields: list[tuple[str, str]], contents: str) -> None:
    call = hook_call(b"A: b\r\n\r\n")
    call["message"].update(headers=fields, contents=contents)
    try:
        request = read_request(json.dumps(call).encode())
        assert request.message is not None
        rebuilt = rebuild(request.message)
    except MailwardenError:
        return
    head = rebuilt.content.removesuffix(contents.encode())
    assert head.endswith(b"\r\n")
    *lines, rest = head[:-2].split(b"\n")
    assert rest == b""
    assert all(line.strip(b"\r") for line in lines), "an empty line ends the header block"
