"""Mutated messages, headers, archives and HTML raise nothing in the message room."""

import os
import random
import time
from collections.abc import Callable

import pytest

from mailwarden.analysis.message_values import summarize
from mailwarden.message.addresses import read_addresses
from mailwarden.message.headers import decode_value
from mailwarden.message.html import read_html
from mailwarden.message.parser import parse_message
from mailwarden.message.structure import check_structure
from mailwarden.message.urls import find_urls, host_of
from tests.fuzz.mutations import mutate
from tests.unit.files.compound_maker import compound
from tests.unit.files.makers import (
    cab,
    field,
    opened,
    properties,
    rar4,
    rar5,
    uuencoded,
    winmail,
    written,
    xxencoded,
    yencoded,
)
from workshop.torture.ambiguous import ambiguous
from workshop.torture.bombs import nested_zip, packed

SPLINTERS = (
    b"\r\n", b"\n", b"\r", b"\0", b"--b", b"--", b"=?utf-8?b?", b"?=", b'"', b"(", b")", b"<", b">", b";", b"=", b":",
    b"Content-Type: message/rfc822\r\n\r\n", b"Content-Type: multipart/mixed; boundary=b\r\n\r\n", b"\xff\xfe", b"%",
    b"Content-Transfer-Encoding: base64\r\n", b"PK\x01\x02", b"PK\x05\x06", b"\x1f\x8b\x08",
    b"begin 644 a\r\n", b"=ybegin ",
)  # fmt: skip


def _read_message(raw: bytes) -> None:
    summarize(parse_message(raw, report=check_structure(raw)))


def _read_text(raw: bytes) -> None:
    text = decode_value(raw)
    read_addresses(text)
    for url in find_urls(text):
        host_of(url)
    read_html(raw.decode("utf-8", "replace"))


def _open(raw: bytes) -> None:
    """Open a container whatever became of it; what cannot be read is recorded, and nothing is raised."""
    opened("a", raw)


MESSAGES = [message.raw for message in ambiguous()]
TEXTS = [
    b'=?utf-8?b?R3LDvMOfZQ==?= "Doe, J" <j@d.example>, (c) x@y.example http://a.example/b?c=d',
    b'<html><a href="http://a.example/">x</a><form action=x><input type=password></form><script>y</script></html>',
]
FILES = {"a.txt": b"x" * 200, "run.js": bytes(range(256)) * 4}
ARCHIVES = [
    packed({"a.txt": b"x" * 200, "b.zip": packed({"c.exe": b"MZ"})}),
    nested_zip(4),
    rar4(FILES),
    rar5(FILES),
    cab(FILES),
    *(written(kind, FILES) for kind in ("7zip", "ustar", "cpio", "xar")),
    *(written("ustar", FILES, packing) for packing in ("gzip", "bzip2", "xz", "zstd", "lz4", "lzip", "compress")),
    written("zip", FILES, options="zip:encryption=aes256", password="infected"),
]
OUTLOOK = [
    winmail((b"a.js", b"x" * 99), before=field(0x00069003, properties((0x0102, 0x1013, b"<html>")))),
    winmail((b"m", b"")) + field(0x00069005, properties((0x000D, 0x3701, bytes(16) + winmail((b"a.js", b"x"))))),
    compound({"__substg1.0_37010102": b"x" * 99, "__substg1.0_10130102": b"<html>", "__substg1.0_10090102": b"LZFu"}),
]
ENCODED = [encode(b"a.js", bytes(range(256))) + encode(b"b.js", b"y") for encode in (uuencoded, xxencoded, yencoded)]
# `make check-long ONLY=fuzz` looks ten times as long, from another start each time.
LONGER = 10 if os.environ.get("MAILWARDEN_FULL") else 1
START = time.time_ns() if LONGER > 1 else 20_261_115


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "samples", "rounds"),
    [
        (_read_message, MESSAGES, 3_000),
        (_read_text, TEXTS, 2_000),
        (_open, ARCHIVES, 3_000),
        (_open, OUTLOOK, 1_500),
        (_open, ENCODED, 1_500),
    ],
    ids=["messages", "texts", "archives", "outlook", "encoded"],
)
def test_mutated_input_raises_nothing(read: Callable[[bytes], None], samples: list[bytes], rounds: int):
    dice = random.Random(START)
    for _ in range(rounds * LONGER):
        read(mutate(dice.choice(samples), dice, SPLINTERS))
