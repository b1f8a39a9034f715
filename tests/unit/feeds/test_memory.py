"""A hostile feed takes a bounded amount of memory for any content."""

import json
import subprocess
import sys

import pytest

from mailwarden.errors import FeedRejected
from mailwarden.feeds import json_stream
from mailwarden.feeds.json_stream import JsonReader
from tests.unit.feeds import parse_memory

MOST = 128 * 1024  # KiB beside the document of 12 MiB; decoded as a whole it takes up to 1 GiB


@pytest.mark.long
@pytest.mark.slow
def test_hostile_feeds_take_a_bounded_amount_of_memory():
    command = [sys.executable, "-m", parse_memory.__name__]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    lines = done.stdout.splitlines()
    assert [line.split("\t")[2] for line in lines] == list(parse_memory.HOSTILE)
    assert sum(int(line.partition("\t")[0]) for line in lines) < MOST, done.stdout


def walked(data: bytes) -> object:
    """Return the document, put together from what the reader yields."""
    reader = JsonReader(data)
    found = _walked(reader)
    reader.end()
    return found


def skipped(data: bytes) -> None:
    reader = JsonReader(data)
    reader.skip()
    reader.end()


def _walked(reader: JsonReader) -> object:
    if reader.peek() == "{":
        return {name: _walked(reader) for name in reader.fields()}
    if reader.peek() == "[":
        return [_walked(reader) for _ in reader.items()]
    return reader.value()


DOCUMENTS = [
    b"{}", b" [ ] ", b"12", b"-1.5e3", b'"a"', b"null",
    '{"a":[1,2,{"b":"ü😀ß"}],"c":{"d":[],"e":{}},"f":"\\ud83d\\ude00 \\" x"}'.encode(),
    b"[" + b",".join(b"%d.5e+3" % n for n in range(200)) + b"]",
    b"[" + b",".join(b'{"number":%d,"text":"%s"}' % (n, b"x" * (n % 40)) for n in range(300)) + b"]",
]  # fmt: skip


@pytest.mark.parametrize("window", [48, 50, 61, 64, 100, 1_000_000])
@pytest.mark.parametrize("data", DOCUMENTS)
def test_a_document_is_read_the_same_in_any_window(data, window, monkeypatch):
    monkeypatch.setattr(json_stream, "WINDOW", window)
    expected = json.loads(data)
    assert walked(data) == expected
    reader = JsonReader(data)
    mark = reader.mark()
    reader.skip()
    reader.end()
    reader.seek(mark)
    assert _walked(reader) == expected


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[1,]", b"[1 2]", b'{"a"}', b'{"a":}', b"{1:2}", b'{"a":1,}', b"[1] x", b"NaN", b"[Infinity]",
        b'"\\ud800"', b'["\xff"]', b"[" * 100_000, b'[{"a":[' * 200, b"9" * 5_000, b'"' + b"x" * 200, b"[01]", b"\xef",
    ],
)  # fmt: skip
@pytest.mark.parametrize("window", [64, 1_000_000])
def test_what_is_no_json_is_rejected(data, window, monkeypatch):
    monkeypatch.setattr(json_stream, "WINDOW", window)
    with pytest.raises(FeedRejected):
        skipped(data)
    with pytest.raises((FeedRejected, RecursionError)):  # the walk of the test is recursive
        walked(data)


def test_a_document_has_a_bounded_number_of_values(monkeypatch):
    monkeypatch.setattr(json_stream, "WINDOW", 64)
    monkeypatch.setattr(json_stream, "MAX_VALUES", 100)
    with pytest.raises(FeedRejected, match="more than 100 values"):
        JsonReader(b"[" + b"1," * 1_000 + b"1]").skip()
