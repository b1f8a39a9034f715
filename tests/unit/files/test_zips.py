"""A ZIP is read as every program reads it, and what contradicts itself is opened in both readings."""

import io
import struct
import zipfile
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.message.limits import Limits
from tests.properties import examples
from tests.unit.files.makers import opened, written
from workshop.torture.bombs import nested_zip, overlapping_zip, packed

SCRIPT = b"WScript.Echo('x')" * 3


def zipped(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target.getvalue()


def streamed(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a ZIP whose sizes stand behind each file, as programs write it into a pipe."""

    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.out = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, data) -> int:
            self.out += bytes(data)
            return len(data)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return bytes(pipe.out)


def local(name: bytes, content: bytes, method: int = 0, flags: int = 0) -> bytes:
    """Return a file with its own header, as it stands before a directory."""
    data = content
    if method == 8:
        packer = zlib.compressobj(wbits=-15)
        data = packer.compress(content) + packer.flush()
    sizes = (0, 0, 0) if flags & 8 else (zlib.crc32(content), len(data), len(content))
    head = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, flags, method, 0, 0x5A21, *sizes, len(name), 0)
    tail = b"PK\x07\x08" + struct.pack("<3I", zlib.crc32(content), len(data), len(content)) if flags & 8 else b""
    return head + name + data + tail


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("make", [zipped, streamed])
def test_the_files_of_a_zip_come_out(make, method):
    found = opened("a.zip", make({"b/run.js": SCRIPT, "c.txt": b""}, method))
    assert found.contents == {"b/run.js": SCRIPT, "c.txt": b""}
    assert not found.missed


def test_a_file_that_the_directory_does_not_list_is_opened():
    for method in (0, 8):
        for flags in (0, 8):
            content = local(b"run.js", SCRIPT, method, flags) + zipped({"note.txt": b"hello"})
            found = opened("a.zip", content)
            assert found.contents["run.js"] == SCRIPT, (method, flags)
            assert found.contents["note.txt"] == b"hello"


def test_zips_behind_each_other_are_both_opened():
    first, second, empty = zipped({"b.js": b"x"}), zipped({"c.txt": b"y"}), zipped({})
    found = opened("a.zip", first + second)
    assert sorted(found.places) == ["b.js", "c.txt"]
    assert found.unpacked.joined
    assert opened("a.zip", first + empty).places == ["b.js"]


@pytest.mark.parametrize("content", [packed({"b.zip": packed({"c.js": b"x"})}), b"MZ" + bytes(99) + packed({"a": b""})])
def test_a_zip_within_another_and_one_behind_a_program_are_not_joined(content):
    found = opened("a.zip", content)
    assert not found.unpacked.joined
    assert not found.missed


def test_a_stored_zip_inside_is_opened_once_and_at_its_place():
    inner = zipped({"c.js": SCRIPT})
    assert opened("a.zip", zipped({"b.zip": inner}, zipfile.ZIP_STORED)).places == ["b.zip", "b.zip > c.js"]


def test_both_names_are_seen_where_the_headers_differ():
    content = zipped({"run.js": SCRIPT})
    found = opened("a.zip", content[:30] + b"a.text"[:6] + content[36:])
    assert sorted(found.places) == ["a.text", "run.js"]


def test_both_contents_are_seen_where_the_headers_differ():
    content = bytearray(zipped({"run.txt": SCRIPT * 20}))
    content[8:10] = b"\0\0"  # the local header says that it is stored
    found = opened("a.zip", bytes(content))
    assert SCRIPT * 20 in [file.content for file in found.files]
    assert len(found.files) == 2


@pytest.mark.parametrize("cut", [1, 5, 22, 60])
def test_a_truncated_zip_is_opened_and_recorded(cut):
    content = zipped({"run.js": SCRIPT, "b.txt": b"x" * 90})
    found = opened("a.zip", content[:-cut])
    assert found.contents["run.js"] == SCRIPT
    assert "damaged" in opened("a.zip", content[: -22 - cut]).missed


def test_a_directory_of_files_that_are_not_there_is_recorded():
    content = zipped({"run.js": SCRIPT}).replace(b"PK\x03\x04", b"PK\x03\x09")
    found = opened("a.zip", b"PK\x03\x04" + content)
    assert "damaged" in found.missed
    assert "run.js" in found.places


def test_an_unknown_method_is_recorded_with_the_name():
    content = zipped({"run.js": SCRIPT}, zipfile.ZIP_STORED).replace(b"\x14\0\0\0\0\0", b"\x14\0\0\0\x4d\0")
    found = opened("a.zip", content)
    assert found.missed == {"unsupported"}
    assert [(file.name, file.is_read) for file in found.files] == [("run.js", False)]
    assert opened("a.zip", content.replace(b"\x14\0\0\0\x4d\0", b"\x14\0\0\0\x09\0")).missed == {"unsupported"}


@pytest.mark.parametrize("how", ["zipcrypt", "aes128", "aes256"])
def test_a_password_from_the_message_opens_a_zip(how):
    content = written(
        "zip", {"run.js": SCRIPT, "b.txt": b"x y" * 33}, options=f"zip:encryption={how}", password="autumn7"
    )
    found = opened("a.zip", content, "wrong", "autumn7")
    assert found.contents == {"run.js": SCRIPT, "b.txt": b"x y" * 33}
    assert all(file.was_hidden for file in found.files)
    assert not found.missed
    assert found.unpacked.encrypted
    locked = opened("a.zip", content, "wrong", "other")
    assert locked.missed == {"encrypted"}
    assert [(file.name, file.is_read) for file in locked.files] == [("run.js", False), ("b.txt", False)]


def test_more_passwords_than_are_tried_are_recorded():
    content = written("zip", {"run.js": SCRIPT}, options="zip:encryption=aes256", password="autumn7")
    found = opened("a.zip", content, *map(str, range(20)), "autumn7", limits=Limits(passwords=20))
    assert found.missed == {"encrypted", "passwords"}


def test_overlapping_files_are_recorded():
    assert "ratio" in opened("a.zip", overlapping_zip(10)).missed


def test_nesting_beyond_the_limit_is_recorded():
    assert not opened("a.zip", nested_zip(12)).missed
    assert opened("a.zip", nested_zip(13)).missed == {"container_depth"}


def test_too_many_files_are_recorded():
    content = packed({str(number): b"" for number in range(30)})
    assert opened("a.zip", content, limits=Limits(files=20)).missed == {"files"}
    assert not opened("a.zip", content, limits=Limits(files=31)).missed


def test_a_wrong_check_sum_is_recorded_and_the_content_is_seen():
    content = zipped({"run.js": SCRIPT}, zipfile.ZIP_STORED).replace(SCRIPT, SCRIPT[:-1] + b"!")
    found = opened("a.zip", content)
    assert found.missed == {"damaged"}
    assert found.contents["run.js"] == SCRIPT[:-1] + b"!"


def test_large_archives_are_read_by_their_own_records():
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive, archive.open("run.js", "w", force_zip64=True) as file:
        file.write(SCRIPT)
    assert opened("a.zip", target.getvalue()).contents == {"run.js": SCRIPT}


@examples(200)
@given(st.integers(0, 300), st.binary(min_size=1, max_size=30))
def test_damaged_zips_raise_nothing(place, noise):
    content = zipped({"a.txt": b"hello" * 9, "b.zip": zipped({"c": b"d"})})
    for broken in (content[:place] + noise + content[place + len(noise) :], content[:place], noise + content):
        opened("a.zip", broken)
