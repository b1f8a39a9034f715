"""Heavy messages are told by what their parts are, not by what they are declared to be."""

import io
import zlib

import pytest
from PIL import Image

from mailwarden.message.message import Message, Part
from mailwarden.pipeline.message_weight import HEAVY_PACKED_BYTES, HEAVY_PICTURES, is_quick, weigh
from mailwarden.pipeline.worker_steps import Job, run_steps

SMALL = (200, 100)
LARGE = (4_000, 4_000)


def picture(size: tuple[int, int], form: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.new("L", size).save(out, form)
    return out.getvalue()


def message(*contents: bytes, media_type: str = "text/plain") -> Message:
    parts = [Part(str(n), media_type, "", "", "utf-8", content, "") for n, content in enumerate(contents)]
    return Message(sum(map(len, contents)), "", (), tuple(parts))


@pytest.mark.parametrize(
    "heavy",
    [
        message(picture(LARGE)),
        message(picture(LARGE, "JPEG"), media_type="image/jpeg"),
        message(picture((1_000, 1_000), "GIF")),
        message(*[picture(SMALL)] * (HEAVY_PICTURES + 1)),
        message(bytes(HEAVY_PACKED_BYTES + 1), media_type="application/zip"),
        message(b"PK\3\4\0" + zlib.compress(bytes(100)) + bytes(HEAVY_PACKED_BYTES)),
    ],
    ids=["png labelled text", "jpeg", "frames", "many", "archive", "archive labelled text"],
)
def test_a_heavy_message_is_recognised(heavy: Message):
    assert weigh(heavy).heavy


@pytest.mark.parametrize(
    "light",
    [
        message(b"Dear Bob\r\n" * 50_000),
        message(picture(SMALL), picture(SMALL, "JPEG"), media_type="image/png"),
        message(b"%PDF-1.7" + bytes(1_000), media_type="application/pdf"),
        message(b"\x89PNG broken", media_type="image/png"),
    ],
    ids=["text", "logos", "short document", "no picture"],
)
def test_ordinary_mail_is_light(light: Message):
    assert not weigh(light).heavy


def test_a_worker_for_light_messages_hands_a_heavy_one_over():
    raw = b"Content-Type: application/octet-stream\r\nContent-Transfer-Encoding: 8bit\r\n\r\n" + bytes(300_000)
    steps = list(run_steps(Job(raw, seconds=60.0)))
    assert [frame.handed_over for frame in steps] == [False, False, True]
    assert not any(frame.handed_over for frame in run_steps(Job(raw)))


HEAD = b"From: Ada <ada@north.example>\r\nSubject: Minutes\r\n"


@pytest.mark.parametrize(
    ("quick", "raw"),
    [
        (True, HEAD + b"\r\nSee you on Monday.\r\n"),
        (True, HEAD + b"Content-Type: text/html\r\n\r\n<p>See you on Monday.\r\n"),
        (False, HEAD + b"Content-Transfer-Encoding: BASE64\r\n\r\nU2VlIHlvdQ==\r\n"),
        (False, HEAD + b"\r\nbegin 644 a.zip\r\n"),
        (False, HEAD + b"\r\n" + b"See you on Monday.\r\n" * 4_000),
    ],
)
def test_short_text_is_quick(quick: bool, raw: bytes):
    assert is_quick(len(raw), [raw]) == quick


def test_a_file_that_did_not_look_like_one_is_handed_over():
    raw = HEAD + b"Content-Transfer-Encoding: quoted-printable\r\n\r\nPK=03=04=00=00\r\n"
    assert is_quick(len(raw), [raw])
    assert list(run_steps(Job(raw, seconds=60.0, quick=True)))[-1].handed_over
    assert not list(run_steps(Job(raw, seconds=60.0)))[-1].handed_over
