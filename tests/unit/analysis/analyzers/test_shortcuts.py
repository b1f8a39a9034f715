"""Shortcuts are read within bounds, and nothing that a file holds breaks their reader."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.analysis.analyzers.shortcuts import TEXT_ENDINGS, Shortcut, read_shortcut

LINK = b"L\0\0\0\x01\x14\x02\0\0\0\0\0\xc0\0\0\0\0\0\0F"


def link(flags, rest):
    return LINK + struct.pack("<I", flags) + bytes(52) + rest


def counted(text):
    return struct.pack("<H", len(text)) + text.encode("utf-16-le")


def test_a_shortcut_has_its_target_and_arguments():
    content = link(0x80 | 0x08 | 0x20, counted("..\\cmd.exe") + counted("/c   start     x"))
    assert read_shortcut("a.lnk", content) == Shortcut("..\\cmd.exe", "/c start x")


def test_a_shortcut_has_the_target_of_its_link_info_and_environment():
    info = struct.pack("<7I", 60, 28, 1, 0, 28, 0, 0) + b"C:\\Windows\\notepad.exe".ljust(32, b"\0")
    assert read_shortcut("a", link(0x82, info)) == Shortcut("C:\\Windows\\notepad.exe")
    block = b"\x14\x03\0\0\x01\0\0\xa0" + b"%ComSpec%".ljust(260, b"\0")
    assert read_shortcut("a", link(0x80, block)) == Shortcut("%ComSpec%")


def test_a_shortcut_without_texts_has_its_last_item():
    items = b"\x14\0\x1fMy Computer\0" + "powershell.exe".encode("utf-16-le") + b"\0\0"
    assert read_shortcut("a", link(0x81, struct.pack("<H", len(items)) + items)) == Shortcut("powershell.exe")


@pytest.mark.parametrize(
    ("name", "content", "target"),
    [
        ("a.url", b"[InternetShortcut]\nURL = https://north.example/\n", "https://north.example/"),
        ("a.url", "[InternetShortcut]\r\nURL=https://north.example/".encode("utf-16"), "https://north.example/"),
        ("a.desktop", b"[Desktop Entry]\nExec=bash -c x\n", "bash -c x"),
        ("a.iqy", b"WEB\n1\nhttps://north.example/q\n", "https://north.example/q"),
        ("a.jnlp", b'<jnlp spec="1.0" codebase="https://north.example/">', "https://north.example/"),
        ("a.settingcontent-ms", b"<DeepLink>cmd.exe /c x</DeepLink>", "cmd.exe /c x"),
        ("a.search-ms", b"search-ms:query=a&crumb=location:\\\\x\\y", "search-ms:query=a&crumb=location:\\\\x\\y"),
        ("a.url", b"", ""),
    ],
)
def test_text_shortcuts_have_their_target(name, content, target):
    assert read_shortcut(name, content) == Shortcut(target)


def test_other_files_are_no_shortcuts():
    assert read_shortcut("a.txt", b"URL=https://north.example/") is None


def test_long_arguments_are_read_to_their_end():
    found = read_shortcut("a.lnk", link(0x80 | 0x20, counted("x" * 60_000)))
    assert found == Shortcut("", "x" * 60_000)


@given(st.sampled_from(sorted(TEXT_ENDINGS)), st.integers(0, 0xFFFF), st.binary(max_size=500))
def test_nothing_breaks_the_reader(ending, flags, noise):
    read_shortcut(f"a.{ending}", noise)
    read_shortcut("a.lnk", link(flags, noise))
    read_shortcut("a.lnk", (link(flags, noise))[: len(noise)])
