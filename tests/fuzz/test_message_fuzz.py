"""Mutated messages, headers, archives and HTML raise nothing in the message room."""

import random
from collections.abc import Callable

import pytest

from mailwarden.message.addresses import read_addresses
from mailwarden.message.archives import open_archive
from mailwarden.message.headers import decode_value
from mailwarden.message.html import read_html
from mailwarden.message.parser import parse_message
from mailwarden.message.structure import check_structure
from mailwarden.message.summary import summarize
from mailwarden.message.urls import find_urls, host_of
from torture.ambiguous import ambiguous
from torture.bombs import nested_zip, packed

SPLINTERS = (
    b"\r\n", b"\n", b"\r", b"\0", b"--b", b"--", b"=?utf-8?b?", b"?=", b'"', b"(", b")", b"<", b">", b";", b"=", b":",
    b"Content-Type: message/rfc822\r\n\r\n", b"Content-Type: multipart/mixed; boundary=b\r\n\r\n", b"\xff\xfe", b"%",
    b"Content-Transfer-Encoding: base64\r\n", b"PK\x01\x02", b"PK\x05\x06", b"\x1f\x8b\x08",
    b"begin 644 a\r\n", b"=ybegin ",
)  # fmt: skip


def _mutate(sample: bytes, dice: random.Random) -> bytes:
    data = bytearray(sample)
    for _ in range(dice.randint(1, 8)):
        at = dice.randint(0, len(data))
        action = dice.randint(0, 4)
        if action == 0:
            data[at:at] = dice.choice(SPLINTERS) * dice.choice((1, 1, 1, 50))
        elif action == 1:
            del data[at : at + dice.randint(1, 40)]
        elif action == 2 and at < len(data):
            data[at] = dice.randrange(256)
        elif action == 3:
            data[at:at] = data[max(at - dice.randint(1, 80), 0) : at]
        else:
            data[at:at] = dice.randbytes(dice.randint(1, 20))
    return bytes(data)


def _read_message(raw: bytes) -> None:
    summarize(parse_message(raw, report=check_structure(raw)))


def _read_text(raw: bytes) -> None:
    text = decode_value(raw)
    read_addresses(text)
    for url in find_urls(text):
        host_of(url)
    read_html(raw.decode("utf-8", "replace"))


def _open(raw: bytes) -> None:
    open_archive("a.zip", raw)


MESSAGES = [message.raw for message in ambiguous()]
TEXTS = [
    b'=?utf-8?b?R3LDvMOfZQ==?= "Doe, J" <j@d.example>, (c) x@y.example http://a.example/b?c=d',
    b'<html><a href="http://a.example/">x</a><form action=x><input type=password></form><script>y</script></html>',
]
ARCHIVES = [packed({"a.txt": b"x" * 200, "b.zip": packed({"c.exe": b"MZ"})}), nested_zip(4)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "samples", "rounds"),
    [(_read_message, MESSAGES, 3_000), (_read_text, TEXTS, 2_000), (_open, ARCHIVES, 2_000)],
    ids=["messages", "texts", "archives"],
)
def test_mutated_input_raises_nothing(read: Callable[[bytes], None], samples: list[bytes], rounds: int):
    dice = random.Random(20_261_115)
    for _ in range(rounds):
        read(_mutate(dice.choice(samples), dice))
