"""Reads hostile feeds in a process of its own, and writes how many KiB of memory each took at most."""

import resource
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from mailwarden.errors import FeedRejected
from mailwarden.feeds import json_stream
from mailwarden.feeds.fetching import _read_envelope
from mailwarden.feeds.indicators import Skipped
from mailwarden.feeds.misp import manifest_events
from mailwarden.feeds.model import FeedFormat, FeedSettings
from mailwarden.feeds.parsing import parse

SIZE = 12 * 1024 * 1024
MAX_ENTRIES = 100_000  # a tenth of the default, so that the test takes seconds


def filled(first: str, again: str, last: str) -> bytes:
    count = (SIZE - len(first) - len(last)) // len(again.encode())
    return first.encode() + again.encode() * count + last.encode()


def indicators(more: str = "") -> bytes:
    """Return a bundle of as many small indicators as fit, each with its own id."""
    made = bytearray(b'{"type":"bundle","objects":[')
    for number in range(SIZE // (36 + len(more.encode()))):
        made += f'{{"type":"indicator","id":"{number:07d}"{more}}},'.encode()
    return bytes(made[:-1] + b"]}")


TAGS = ',"labels":[' + ",".join(f'"{number:02d}"' for number in range(20)) + "]"
HOSTILE: Mapping[str, tuple[FeedFormat, Callable[[], bytes]]] = {
    "stix-empty-objects": (FeedFormat.STIX, lambda: filled('{"objects":[', "{},", "{}]}")),
    "stix-one-large-object": (FeedFormat.STIX, lambda: filled('{"objects":[{"a":[', "[],", "[]]}]}")),
    "stix-large-field": (FeedFormat.STIX, lambda: filled('{"a":[', "[],", '[]],"objects":[]}')),
    "stix-small-objects": (FeedFormat.STIX, lambda: filled('{"objects":[', '{"a":1},', "{}]}")),
    "stix-indicators": (FeedFormat.STIX, indicators),
    "stix-tags": (FeedFormat.STIX, lambda: indicators(TAGS)),
    "stix-wide-text": (FeedFormat.STIX, lambda: indicators(',"pattern":"' + "x" * 2_000 + "\U0001f600" + '"')),
    "taxii-pages": (FeedFormat.TAXII, lambda: filled('{"objects":[', "[],", "[]]}")),
    "misp-attributes": (FeedFormat.MISP, lambda: filled('{"Event":{"Attribute":[', "{},", "{}]}}")),
    "misp-skipped": (
        FeedFormat.MISP,
        lambda: filled('{"response":[{"Event":{"Attribute":[', '{"type":"a","value":""},', "{}]}}]}"),
    ),
    "misp-large-field": (FeedFormat.MISP, lambda: filled('{"Event":{"a":[', "[],", "[]]}}")),
    "misp-keys": (FeedFormat.MISP, lambda: filled("{", '"a":0,', '"b":0}')),
    "misp-nested": (FeedFormat.MISP, lambda: b'{"a":' + b"[" * SIZE),
    "csv-one-row": (FeedFormat.CSV, lambda: filled("value\n", '"a\n",', "a\n")),
    "csv-endless-field": (FeedFormat.CSV, lambda: filled('value\n"', "a\n", '"\n')),
    "csv-wide-text": (FeedFormat.CSV, lambda: filled("value\n\U0001f600\n", "a.example\n", "a\n")),
    "ndjson-dense-lines": (FeedFormat.NDJSON, lambda: filled("", '{"a":[' + "[]," * 20_000 + '[]],"value":"b"}\n', "")),
    "text-one-line": (FeedFormat.TEXT, lambda: filled("", "a", "")),
    "text-wide": (FeedFormat.TEXT, lambda: filled("\U0001f600\n", "a.example\n", "")),
}


def read(form: FeedFormat, data: bytes) -> None:
    settings = FeedSettings("https://feeds.example/", form, "url-block", max_entries=MAX_ENTRIES)
    if form is FeedFormat.TAXII:
        _read_envelope(data, "")
    if form is FeedFormat.MISP:
        manifest_events(data)
    for _ in parse(settings, (data,), datetime.now(UTC), Skipped()):
        pass


def main() -> None:
    json_stream.MAX_VALUES = 2 * MAX_ENTRIES
    for name, (form, make) in HOSTILE.items():
        data, began = make(), time.monotonic()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        reason = ""
        try:
            read(form, data)
        except FeedRejected as error:
            reason = error.message
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        sys.stdout.write(f"{grown}\t{time.monotonic() - began:.1f} s\t{name}\t{reason}\n")


if __name__ == "__main__":
    main()
