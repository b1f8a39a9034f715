"""Disk images are listed, and broken ones end the walk."""

import contextlib
from email import message_from_bytes
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from mailwarden.message.archives import open_archive
from mailwarden.message.disk_images import walk_iso

SAMPLE = Path(__file__).parents[2] / "analyzers" / "attachments" / "disk-image.eml"
IMAGE = next(
    bytes(part.get_payload(decode=True))
    for part in message_from_bytes(SAMPLE.read_bytes()).walk()
    if part.get_filename()
)
DIRECTORY = 18 * 2_048


def test_the_files_of_an_image_are_members():
    members = open_archive("a.iso", IMAGE).members
    assert [(member.path, member.content[:2]) for member in members] == [
        ("a.iso > PAPERS.EXE", b"MZ"),
        ("a.iso > READ.TXT", b"he"),
    ]


def test_an_image_without_a_directory_cannot_be_read():
    report = open_archive("a.iso", bytes(32_769) + b"CD001")
    assert report.members == ()
    assert report.unreadable


def test_a_directory_that_holds_itself_is_visited_once():
    looped = bytearray(IMAGE)
    looped[DIRECTORY + 32 : DIRECTORY + 34] = b"\1A"
    assert len(list(walk_iso(bytes(looped)))) == 2


@settings(deadline=None)
@given(st.integers(0, 6_000), st.binary(min_size=1, max_size=50))
def test_no_broken_image_breaks_the_walk(place, noise):
    broken = bytearray(IMAGE)
    broken[32_768 + place : 32_768 + place + len(noise)] = noise
    with contextlib.suppress(ValueError):
        assert len(list(walk_iso(bytes(broken)))) <= 20_000
    open_archive("a.iso", bytes(broken))
