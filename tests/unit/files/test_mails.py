"""Messages as files are opened at any depth: .eml, .mht, mailboxes, Outlook's .msg, TNEF and signed ones."""

import base64
import binascii
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.files.rtf import read_outlook_rtf, unpack_rtf
from mailwarden.message.limits import Limits
from tests.properties import examples
from tests.unit.files.compound_maker import compound
from tests.unit.files.makers import (
    field,
    mail,
    mail_with,
    opened,
    properties,
    uuencoded,
    winmail,
    xxencoded,
    yencoded,
)
from workshop.torture.bombs import packed

SCRIPT = b"WScript.Echo('x')" * 3
PAGE = b"<html><form>password</form></html>"
RTF = (
    rb"{\rtf1\ansi\fromhtml1 {\fonttbl{\f0 Arial;}}{\*\htmltag64 <p>}\htmlrtf {\htmlrtf0 pay "
    rb"{\*\htmltag84 <a href='https://a.example/'>}\htmlrtf \b\htmlrtf0 here{\*\htmltag92 </a>}\htmlrtf }\htmlrtf0}"
)


def packed_rtf(rtf: bytes) -> bytes:
    """Pack RTF without references: every eighth byte is a control byte."""
    body = b"".join(b"\0" + rtf[start : start + 8] for start in range(0, len(rtf), 8))
    return struct.pack("<II4sI", len(body) + 12, len(rtf), b"LZFu", binascii.crc32(body)) + body


@pytest.mark.parametrize("name", ["a.eml", "a.mht", "a", "a.txt"])
def test_a_message_is_opened_by_its_name_or_by_its_content(name):
    found = opened(name, mail_with(("run.js", SCRIPT), body=PAGE))
    assert found.contents == {"text.html": PAGE, "run.js": SCRIPT}
    assert [file.is_body for file in found.files] == [True, False]
    assert found.files[0].media_type == "text/html"


@pytest.mark.parametrize("front", [b"\r\n\r\n", b"\xef\xbb\xbf", b"From : x@y.example\r\n"])
def test_a_message_is_recognised_after_leading_bytes(front):
    assert opened("note", front + mail_with(("run.js", SCRIPT))).contents["run.js"] == SCRIPT


def test_messages_in_messages_in_archives_are_opened():
    inner = mail_with(("b.zip", packed({"run.js": SCRIPT})))
    found = opened("a.zip", packed({"x.eml": mail_with(("y.eml", inner))}))
    assert found.contents["x.eml > y.eml > b.zip > run.js"] == SCRIPT


def test_a_message_beyond_a_limit_is_recorded():
    deep = b"Content-Type: message/rfc822\r\n\r\n" * 40
    assert "depth" in opened("a.eml", b"From: a@b.example\r\n" + deep).missed
    many = mail_with(*[(f"{number}.txt", b"%d" % number) for number in range(40)])
    assert opened("a.eml", many, limits=Limits(files=30)).missed == {"files"}
    assert not opened("a.eml", many).missed


def test_more_files_than_sixty_in_a_message_are_opened():
    many = mail_with(*[(f"{number}.txt", b"%d" % number) for number in range(200)], ("run.js", SCRIPT))
    assert opened("a.eml", many).contents["run.js"] == SCRIPT


def test_every_message_of_a_mailbox_is_opened():
    envelope = b"From ada@north.example Mon Nov  2 09:00:00 2026\n"
    content = envelope + mail(b"<p>one</p>") + b"\n\n" + envelope + mail_with(("run.js", SCRIPT))
    assert opened("inbox", content).contents["message 2.eml > run.js"] == SCRIPT


def test_a_saved_message_of_outlook_is_opened_with_its_texts():
    content = compound(
        {
            "__substg1.0_37010102": SCRIPT,
            "__substg1.0_3707001F": "run.js".encode("utf-16-le"),
            "__substg1.0_3704001F": "RUN~1.TXT".encode("utf-16-le"),
            "__substg1.0_10130102": PAGE,
        }
    )
    found = opened("a.msg", content)
    names = {file.name for file in found.files}
    assert {"run.js", "RUN~1.TXT", "text.html"} <= names
    assert opened("a.zip", packed({"b": content})).contents["b > text.html"].startswith(PAGE)


def test_a_damaged_saved_message_is_recorded():
    content = compound({"__substg1.0_37010102": SCRIPT})
    assert "damaged" in opened("a.msg", content[:3_000] + content[-900:]).missed


def test_every_file_of_a_winmail_is_opened():
    files = [(b"%d.txt" % number, b"%d" % number) for number in range(300)]
    found = opened("winmail.dat", winmail(*files, (b"run.js", SCRIPT), before=field(0x00069004, b"x") * 6_000))
    assert found.contents["run.js"] == SCRIPT
    assert len(found.files) == 301
    assert not found.missed


def test_the_long_name_in_a_winmail_is_seen():
    long_name = properties((0x001F, 0x3707, "invoice.js\0".encode("utf-16-le")))
    content = winmail((b"INVOIC~1.TXT", SCRIPT)) + field(0x00069005, long_name)
    assert opened("winmail.dat", content).places == ["invoice.js", "INVOIC~1.TXT"]


def test_the_texts_of_a_winmail_are_seen():
    texts = properties((0x0102, 0x1013, PAGE), (0x0102, 0x1009, packed_rtf(RTF)), (0x001F, 0x1000, b"h\0i\0"))
    found = opened("winmail.dat", winmail(before=field(0x00069003, texts) + field(0x0002800C, b"plain\0")))
    assert all(file.is_body for file in found.files)
    assert {file.media_type for file in found.files} == {"text/html", "text/rtf", "text/plain"}
    assert any(
        b"<a href='https://a.example/'>" in file.content and b"\\rtf" not in file.content for file in found.files
    )


def test_a_message_within_a_winmail_is_opened():
    inner = winmail((b"run.js", SCRIPT))
    whole = properties((0x000D, 0x3701, bytes(16) + inner))
    found = opened("winmail.dat", winmail((b"m", b"")) + field(0x00069005, whole))
    assert any(place.endswith("run.js") for place in found.places)


def test_a_winmail_that_is_cut_is_recorded():
    content = winmail((b"run.js", SCRIPT))
    assert opened("winmail.dat", content[:-20]).missed == {"damaged"}
    assert "damaged" in opened("winmail.dat", winmail(before=field(0x00069003, b"\xff\0\0\0\0"))).missed


def test_a_page_in_rtf_is_read():
    assert b"".join(unpack_rtf(packed_rtf(RTF))) == RTF
    text, is_page = read_outlook_rtf(RTF)
    assert is_page
    assert text == "<p>pay <a href='https://a.example/'>here</a>"
    assert read_outlook_rtf(rb"{\rtf1 {\fonttbl x;}pay\par now \'e9 \u8364?}") == ("pay\r\nnow é €", False)


def test_references_in_packed_rtf_are_followed():
    # MS-OXRTFCP 3.1.1: "hello world" once more than it is written.
    example = bytes.fromhex(
        "2d0000002b0000004c5a4675f1c5c7a703000a007263706731323542320af32068656c090020627705b06c647d0a800fa0"
    )
    assert b"".join(unpack_rtf(example)) == rb"{\rtf1\ansi\ansicpg1252\pard hello world}" + b"\r\n"


def test_content_that_only_its_reader_can_decrypt_is_recorded():
    pgp = b"-----BEGIN PGP MESSAGE-----\n\nhQEMA\n-----END PGP MESSAGE-----\n"
    assert opened("encrypted.asc", pgp).missed == {"encrypted"}
    enveloped = bytes.fromhex("308204a006092a864886f70d010703a0820491") + bytes(99)
    assert opened("smime.p7m", enveloped).missed == {"encrypted"}


def test_a_fragment_of_a_message_is_recorded():
    assert "unsupported" in opened("", b"x", media_type="message/partial").missed


@pytest.mark.parametrize("encode", [uuencoded, xxencoded, yencoded])
def test_encoded_files_come_out_with_their_names(encode):
    noise = bytes(range(256)) * 3
    text = b"Hello\n" + b"".join(encode(b"%d.txt" % number, b"%d" % number) for number in range(30))
    found = opened("a.txt", text + b"and\n" + encode(b"run.js", SCRIPT) + encode(b"noise.bin", noise))
    assert (found.contents["run.js"], found.contents["noise.bin"]) == (SCRIPT, noise)
    assert len(found.files) == 32


def test_a_file_of_base64_is_decoded():
    found = opened("run.js.b64", base64.encodebytes(SCRIPT * 9))
    assert found.contents == {"run.js": SCRIPT * 9}


def test_the_files_of_a_calendar_come_out():
    entry = b'ATTACH;ENCODING=BASE64;VALUE=BINARY;X-FILENAME="run;1.js":%s\r\n' % base64.b64encode(SCRIPT)
    found = opened("a.ics", b"BEGIN:VCALENDAR\r\n" + b"ATTACH;FMTTYPE=a/b;VALUE=BINARY:AAAA\r\n" * 99 + entry)
    assert found.contents["run;1.js"] == SCRIPT


SAMPLES = [
    winmail((b"a.js", SCRIPT)),
    uuencoded(b"a.js", SCRIPT),
    yencoded(b"a.js", SCRIPT),
    mail_with(("a", SCRIPT)),
    compound({"__substg1.0_37010102": SCRIPT, "__substg1.0_10090102": packed_rtf(RTF)}),
    packed_rtf(RTF),
]


@examples(150)
@given(st.sampled_from(SAMPLES), st.integers(0, 6_000), st.binary(min_size=1, max_size=40))
def test_damaged_messages_raise_nothing(content, place, noise):
    place %= len(content)
    for broken in (content[:place] + noise + content[place + len(noise) :], content[:place]):
        opened("a", broken)
        b"".join(unpack_rtf(broken))
        read_outlook_rtf(broken)
