"""Archives of every kind are opened by libarchive in memory, and what it refuses is recorded."""

import bz2
import gzip
import lzma
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.files.archive_types import archive_kind, unsupported_kind
from mailwarden.message.limits import Limits
from tests.properties import examples
from tests.unit.files.makers import cab, mail_with, opened, rar4, rar5, tar, winmail, written
from workshop.torture.bombs import packed

FILES = {"invoice.htm": b"<html>pay</html>", "run/a.exe": b"MZ" + bytes(100)}
ARCHIVES = {
    "rar 4": rar4(FILES),
    "rar 5": rar5(FILES),
    "7z": written("7zip", FILES),
    "7z stored": written("7zip", FILES, options="7zip:compression=store"),
    "7z by bzip2": written("7zip", FILES, options="7zip:compression=bzip2"),
    "7z by PPMd": written("7zip", FILES, options="7zip:compression=ppmd"),
    "7z by Deflate": written("7zip", FILES, options="7zip:compression=deflate"),
    "cab": cab(FILES),
    "old tar": written("v7tar", FILES),
    "ustar": written("ustar", FILES),
    "pax": written("pax", FILES),
    "gnu tar": tar(FILES),
    "cpio": written("cpio", FILES),
    "new cpio": written("cpio_newc", FILES),
    "xar": written("xar", FILES),
    "iso": written("iso9660", FILES, options="iso9660:!pad"),
    "zip": packed(FILES),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_is_opened(name):
    found = opened("a", ARCHIVES[name])
    contents = {place.lower(): content for place, content in found.contents.items()}
    assert contents["invoice.htm"] == FILES["invoice.htm"]
    assert contents["run/a.exe"] == FILES["run/a.exe"]
    assert not found.missed


def test_a_debian_package_is_opened():
    data = written("ar_bsd", {"data.tar": tar(FILES)})
    assert "data.tar > invoice.htm" in opened("a.deb", data).places


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_in_another_container_is_opened(name):
    for outer in (packed({"x": ARCHIVES[name]}), mail_with(("x", ARCHIVES[name])), winmail((b"x", ARCHIVES[name]))):
        places = [
            place.lower() for place in opened("outer.eml" if outer.startswith(b"From") else "outer", outer).places
        ]
        assert "x > invoice.htm" in places


@pytest.mark.parametrize(
    ("name", "inner", "content"),
    [
        ("a.html.gz", "a.html", gzip.compress(b"<html>" * 9, mtime=0)),
        ("a.svgz", "a.svg", gzip.compress(b"<svg/>" * 9, mtime=0)),
        ("a.html.bz2", "a.html", bz2.compress(b"<html>" * 9)), ("a.html.xz", "a.html", lzma.compress(b"<html>" * 9)),
        ("a.html.lzma", "a.html", lzma.compress(b"<html>" * 9, lzma.FORMAT_ALONE)),
    ],
)  # fmt: skip
def test_a_packed_file_is_opened_under_its_name(name, inner, content):
    found = opened(name, content)
    assert found.places == [inner]
    assert not found.missed


@pytest.mark.parametrize("packing", ["zstd", "lz4", "lzip", "compress", "gzip", "bzip2", "xz", "lzma"])
def test_a_packed_archive_is_opened(packing):
    found = opened("a", written("ustar", FILES, packing))
    assert [place for place in found.places if place.endswith("> invoice.htm")]
    assert not found.missed


def test_both_names_of_a_gzip_file_are_seen():
    content = bytearray(gzip.compress(b"alert(1)"))
    content[3] |= 8
    content[10:10] = b"run.js\0"
    assert opened("holiday.txt.gz", bytes(content)).places == ["holiday.txt", "run.js"]


def test_every_name_of_a_file_that_is_packed_several_times_is_seen():
    inner = bytearray(gzip.compress(b"alert(1)"))
    inner[3] |= 8  # FNAME
    inner[10:10] = b"hidden.js\0"
    content = gzip.compress(gzip.compress(bytes(inner)))
    names = ["a.pdf.js.gz.gz", "a.pdf.js.gz", "a.pdf.js", "hidden.js"]
    assert opened("a.pdf.js.gz.gz.gz", content).contents == dict.fromkeys(names, b"alert(1)")


@pytest.mark.parametrize(
    "content",
    [rar4(FILES, flags=4), rar4({}, main_flags=0x80) + bytes(99), rar5({}, encrypted=True)],
    ids=["rar 4", "rar 4 with its names", "rar 5 with its names"],
)
def test_an_encrypted_archive_is_recorded(content):
    found = opened("a.rar", content)
    assert "encrypted" in found.missed
    assert found.unpacked.encrypted


def test_names_in_an_archive_that_is_refused_are_seen():
    damaged = bytearray(rar4(FILES))
    damaged[7] ^= 0xFF  # the check sum of the first block
    found = opened("a.rar", bytes(damaged))
    assert found.places == ["invoice.htm", "run/a.exe"]
    assert not any(file.is_read for file in found.files)
    assert found.missed == {"damaged"}


@pytest.mark.parametrize("name", ["rar 4", "rar 5", "7z", "cab", "zip"])
def test_data_before_an_archive_hides_nothing(name):
    for front in (b"Dear Bob, " * 50, bytes(5_000_000)):
        assert "invoice.htm" in opened("a.rar", front + ARCHIVES[name]).places


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x", b"1234567**ACE**" + bytes(99)), ("x", b"\x60\xea" + bytes(99)), ("x", b"MSWIM\0\0\0" + bytes(99)),
        ("x", b"conectix" + bytes(99)), ("x", b"hsqs" + bytes(99)), ("x", b"ALZ\x01" + bytes(99)),
        ("x", bytes(32_768) + b"\0BEA01" + bytes(9_999)), ("x", bytes(900) + b"koly" + bytes(508)),
        ("a.arc", bytes(99)), ("a.r07", bytes(99)), ("a.7z.003", bytes(99)), ("a.rar", bytes(99)), ("a.img", bytes(99)),
    ],
)  # fmt: skip
def test_a_container_that_cannot_be_opened_is_recorded(name, content):
    assert unsupported_kind(name, content)
    assert opened(name, content).missed == {"unsupported"}
    assert "unsupported" in opened("a.zip", packed({name: content})).missed


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", b"hello"),
        ("a.001", b"Item 1\n"),
        ("a.pdf", b"%PDF-1.7 " + bytes(99)),
        ("a.bin", bytes(99)),
        ("a.z", b"x"),
    ],
)
def test_other_files_are_no_containers(name, content):
    found = opened(name, content)
    assert (found.files, found.missed) == ((), set())


@pytest.mark.slow
def test_a_bomb_in_any_archive_is_recorded():
    zeros = {"a": bytes(20 * 1024 * 1024)}
    for content in (written("7zip", zeros), gzip.compress(zeros["a"]), packed(zeros), written("ustar", zeros, "xz")):
        assert "ratio" in opened("a", content).missed


def test_a_limit_on_size_is_recorded_and_the_others_are_read():
    content = written("7zip", {"a": b"x" * 1_000, "b.js": b"y" * 10})
    found = opened("a.7z", content, limits=Limits(file_bytes=500))
    assert found.missed == {"file_bytes"}
    assert found.contents == {"a": b"", "b.js": b"y" * 10}
    assert opened("a.7z", content, limits=Limits(unpacked_bytes=500)).missed == {"unpacked_bytes"}
    assert opened("a.7z", content, limits=Limits(files=2)).missed == {"files"}


def test_the_kind_of_an_archive_is_known_by_its_content():
    assert archive_kind(b"GIF89a" + packed({"a.exe": b"MZ"})) == "zip"
    assert archive_kind(b"GIF89a" + bytes(99) + b"PK\x05\x06" + bytes(99)) == ""
    assert archive_kind(b"hello") == ""


@examples(150)
@given(st.sampled_from(sorted(ARCHIVES)), st.integers(0, 400), st.binary(min_size=1, max_size=40))
def test_damaged_archives_raise_nothing(name, place, noise):
    content = ARCHIVES[name]
    for broken in (content[:place] + noise + content[place + len(noise) :], content[:place], content[:8] + noise):
        opened("a", broken)


def test_libarchive_is_loaded_without_a_search_for_it():
    """The search starts programs, which an image without a shell does not have."""
    program = (
        "import ctypes.util\n"
        "ctypes.util.find_library = lambda name: print('searched', name)\n"
        "import mailwarden.files.archives\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PATH": "/nonexistent"}
    )
    assert "searched archive" not in done.stdout
