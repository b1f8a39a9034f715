"""The scan upload: which bodies are taken, which error each other one gets, and that the message stays byte-exact."""

import hashlib
import os
from pathlib import Path

import pytest

from mailwarden import errors
from mailwarden.serving.spool import MAX_IN_MEMORY, Spooled
from mailwarden.serving.uploads import MAX_PARAMETERS, UploadReceiver

JSON = "Content-Type: application/json\r\n"


def part(name, payload, headers=""):
    return f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n{headers}\r\n'.encode() + payload + b"\r\n"


def body_of(*parts):
    return b"".join(parts) + b"--b--\r\n"


GOOD = body_of(part("parameters", b'{"a": 1}', JSON), part("email", b"Subject: a\r\n\r\nb\r\n"))


async def receive(body, tmp_path, size=65_536):
    receiver = UploadReceiver("b", tmp_path)
    try:
        for start in range(0, len(body), size):
            await receiver.take(body[start : start + size])
        return await receiver.finish()
    finally:
        receiver.discard()


@pytest.mark.parametrize("size", [1, 7, 65_536])
async def test_the_message_is_byte_exact(tmp_path, size):
    upload = await receive(GOOD, tmp_path, size)
    assert (upload.parameters, upload.email.data()) == (b'{"a": 1}', b"Subject: a\r\n\r\nb\r\n")


async def test_a_large_upload_goes_through_a_file_without_a_name(tmp_path):
    message = os.urandom(3_000_001)
    with await receive(body_of(part("parameters", b"{}", JSON), part("email", message)), tmp_path) as upload:
        assert list(tmp_path.iterdir()) == []
        assert not upload.email.in_memory
        assert b"".join(upload.email.chunks(100_000)) == upload.email.data() == message
        assert upload.email.sha256() == hashlib.sha256(message).digest()
        assert b"".join([chunk async for chunk in upload.email.stream()]) == message
        assert read_opened(upload.email) == message


def read_opened(spooled: Spooled) -> bytes:
    with os.fdopen(spooled.open_to_read() or -1, "rb") as file:
        return file.read()


async def test_up_to_a_mebibyte_stays_in_memory(tmp_path):
    for extra in (0, 1):
        body = body_of(part("parameters", b"{}", JSON), part("email", b"x" * (MAX_IN_MEMORY + extra)))
        with await receive(body, tmp_path) as upload:
            assert upload.email.in_memory is (extra == 0)


@pytest.mark.parametrize(
    ("error", "body"),
    [
        (errors.MissingPart, body_of(part("email", b"x"))),
        (errors.MissingPart, body_of(part("parameters", b"{}", JSON))),
        (errors.MissingPart, b"--b--"),
        (errors.DuplicatePart, body_of(part("email", b"x"), part("email", b"x"))),
        (errors.DuplicatePart, body_of(part("parameters", b"", JSON), part("parameters", b"", JSON))),
        (errors.UnexpectedPart, body_of(part("extra", b"x"))),
        (errors.UnexpectedPart, body_of(part("Email", b"x"))),
        (errors.UnexpectedPart, body_of(part("", b"x"))),
        (errors.EmptyEmail, body_of(part("parameters", b"{}", JSON), part("email", b""))),
        (errors.ParametersContentTypeRequired, body_of(part("parameters", b"{}"))),
        (errors.ParametersContentTypeRequired, body_of(part("parameters", b"{}", "Content-Type: text/plain\r\n"))),
        (
            errors.ParametersContentTypeRequired,
            body_of(part("parameters", b"{}", "Content-Type: application/json; charset=latin-1\r\n")),
        ),
        (errors.PayloadTooLarge, body_of(part("parameters", b" " * (MAX_PARAMETERS + 1), JSON), part("email", b"x"))),
        (errors.MalformedMultipart, GOOD[:-6]),
        (errors.MalformedMultipart, b""),
    ],
)
async def test_each_mistake_has_its_error(tmp_path, error, body):
    with pytest.raises(error):
        await receive(body, tmp_path)


@pytest.mark.parametrize("charset", ["; charset=utf-8", '; charset="UTF-8"', ";charset=utf8", "; profile=x", ";"])
async def test_the_content_type_of_parameters_may_have_parameters(tmp_path, charset):
    header = f"Content-Type: application/json{charset}\r\n"
    upload = await receive(body_of(part("parameters", b"{}", header), part("email", b"x")), tmp_path)
    assert upload.parameters == b"{}"


async def test_a_refused_upload_leaves_no_open_file(tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(errors.MalformedMultipart):
        await receive(body_of(part("email", b"x" * 3_000_000))[:-8], tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


async def test_no_room_to_spool_is_overload_and_not_a_bug(tmp_path):
    with pytest.raises(errors.Overloaded):
        await receive(body_of(part("email", b"x" * 3_000_000)), tmp_path / "absent")


def test_a_window_outside_of_the_bytes_is_refused():
    whole = Spooled.of(b"abcdef")
    assert whole.window(2, 3).window(1, 2).data() == b"de"
    for offset, length in ((-1, 2), (0, 7), (3, 4), (0, -1)):
        with pytest.raises(ValueError, match="outside"):
            whole.window(offset, length)
