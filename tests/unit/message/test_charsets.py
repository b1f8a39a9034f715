"""Every text that some client decodes from the same bytes is read, and ordinary mail has one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.message.charsets import codec_for, readings, unread_charset

JAPANESE = "請求書をお送りします。ご確認ください。"
CHINESE = "您好，附件是会议纪要，请查收。"
KOREAN = "안녕하세요, 회의록을 보내 드립니다."


@pytest.mark.parametrize(
    ("label", "codec"),
    [
        ("iso-8859-1", "cp1252"),
        ("ISO_8859-1:1987", "cp1252"),
        ("x-sjis", "cp932"),
        ("ks_c_5601-1987", "cp949"),
        ("unicode-1-1-utf-7", "utf_7"),
        ("IBM037", "cp037"),
        ("ibm-1047", "cp1047"),
        ("IBM1141", "cp037"),
        ("iso-2022-cn", "iso2022_cn"),
        ("hz-gb-2312", "hz"),
        ("windows-31j", "cp932"),
        ("utf-8*en", "utf_8"),
        ("x-nobody-knows", ""),
    ],
)
def test_a_label_selects_the_codec_that_clients_take(label, codec):
    assert codec_for(label) == codec


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        (JAPANESE, "utf-8"),
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc-jp"),
        (CHINESE, "gb2312"),
        (CHINESE, "gb18030"),
        (KOREAN, "euc-kr"),
        ("Grüße aus Köln", "iso-8859-1"),
        ("Grüße aus Köln", "utf-8"),
        ("Добрый день", "koi8-r"),
    ],
)
def test_ordinary_text_reads_first_as_its_label_says(text, codec):
    found = readings(text.encode(codec), (codec,))
    assert found[0] == text
    assert len(found) <= 2
    assert unread_charset(text.encode(codec), (codec,)) == ""


def test_ordinary_ascii_has_one_reading():
    assert readings(b"Hello Bob, 2 + 2 = 4", ("us-ascii",)) == ("Hello Bob, 2 + 2 = 4",)
    page = b'<html><head><meta charset="iso-8859-1"></head><p>Hello</p>'
    assert len(readings(page, ("utf-8",), page=True)) == 1


@pytest.mark.parametrize("text", [JAPANESE])
def test_iso_2022_jp_is_decoded_with_and_without_its_label(text):
    assert readings(text.encode("iso-2022-jp"), ("iso-2022-jp",))[0] == text
    assert text in readings(text.encode("iso-2022-jp"))


def test_iso_2022_cn_and_cp1047_are_decoded():
    assert readings(b"\x1b$)A\x0e;a\x0f ok", ("iso-2022-cn",))[0] == "会 ok"
    assert "[a]" in readings(b"\xad\x81\xbd", ("ibm-1047",))


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-16", "utf-32"])
@pytest.mark.parametrize("label", ["", "us-ascii", "utf-8"])
def test_wide_text_is_read_with_any_charset_label(codec, label):
    assert "<p>Hello, Bob</p>" in readings("<p>Hello, Bob</p>".encode(codec), (label,))


@pytest.mark.parametrize(("first", "second"), [("us-ascii", "utf-7"), ("utf-7", "us-ascii")])
def test_of_two_labels_both_count(first, second):
    found = readings(b"+ADw-p+AD4-", (first, second))
    assert set(found) >= {"<p>", "+ADw-p+AD4-"}


@given(st.binary(max_size=300), st.sampled_from(["", "utf-7", "hz", "iso-2022-cn", "cp1047", "utf-16", "big5", "no"]))
def test_any_bytes_have_few_readings(content, label):
    found = readings(content, (label, "utf-8"), page=True, saved=True)
    assert 1 <= len(found) <= 16
    assert all(text.encode() is not None for text in found), "no half of a surrogate pair"
    unread_charset(content, (label,))


def test_half_of_a_surrogate_pair_is_replaced():
    assert "\ufffd verify" in readings(b"+2D0- verify", ("utf-7",))
    assert "\U0001f600 verify" in readings(b"+2D3eAA- verify", ("utf-7",))
