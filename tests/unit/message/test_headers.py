"""Header values become text; encoded words and parameters are decoded within limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.message.charsets import codec_for, decode_text
from mailwarden.message.headers import (
    decode_headers,
    decode_value,
    nests_deeper,
    parameter,
    read_fields,
    read_parameters,
    strip_comments,
)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b" plain ", "plain"),
        (b"=?utf-8?q?Gr=C3=BC=C3=9Fe?=", "Grüße"),
        (b"=?UTF-8?B?R3LDvMOfZQ==?= again", "Grüße again"),
        (b"=?utf-8?q?a?= =?utf-8?q?b?=", "ab"),
        (b"=?utf-8?b?w7w=?= and =?iso-8859-1?q?=FC?=", "ü and ü"),
        (b"=?utf-8?b?w?= =?utf-8?q?x?=", "x"),
        (b"=?utf-8?q?=C3?= =?utf-8?q?=BC?=", "ü"),
        (b"=?zip?b?eJw=?=", "xœ"),
        (b"=?utf-8?x?no?=", "=?utf-8?x?no?="),
        ("raw ü".encode(), "raw ü"),
        (b"raw \xfc", "raw ü"),
        (b"a\0b\x07c", "a b c"),
    ],
)
def test_a_value_is_decoded(written: bytes, read: str):
    assert decode_value(written) == read


@pytest.mark.parametrize("label", ["idna", "punycode", "unicode_escape", "hex", "zip", "rot13", "raw_unicode_escape"])
def test_dangerous_codecs_are_not_on_the_list(label: str):
    assert codec_for(label) == ""


@pytest.mark.parametrize("label", ["utf-8", "ISO-8859-1", "windows-1251", "gb2312", "iso-2022-jp", "koi8-r", '"utf-8"'])
def test_charsets_of_real_mail_decode(label: str):
    assert decode_text(b"hello", label) == "hello"


def test_every_charset_on_the_list_has_a_codec():
    from mailwarden.message import charsets

    for label in (*charsets._CODECS, *charsets._LABELS):
        assert charsets.codec_for(label), label
        charsets.decode_text(b"x", label)


def test_fields_are_unfolded_and_named_in_lower_case():
    assert read_fields(b"Subject: a\r\n b\r\nX-Y:c\r\nnothing\r\n") == [
        (b"subject", b" a b"),
        (b"x-y", b"c"),
        (b"", b"nothing"),
    ]


def test_headers_keep_their_order_and_repeat():
    headers = decode_headers(read_fields(b"A: 1\r\nB: 2\r\nA: 3\r\n"))
    assert [(header.name, header.value) for header in headers] == [("a", "1"), ("b", "2"), ("a", "3")]


def test_comments_are_taken_out_but_not_of_quotes():
    assert strip_comments(b'text/plain (a (b) c); x="(d)"').split() == [b"text/plain", b";", b'x="(d)"']
    assert nests_deeper(b"(((a)))(b)", 2)
    assert not nests_deeper(b"(((a)))(b)", 3)


def test_parameters_are_read_as_written():
    found = read_parameters(b'; a=b; C="d \\" e"; f = g', 100)
    assert [(each.name, each.value) for each in found] == [(b"a", b"b"), (b"c", b'd " e'), (b"f", b"g")]


def test_parameters_stop_at_the_limit():
    assert len(read_parameters(b"; a=b" * 1_000, 100)) == 100


def test_continuations_are_joined_in_their_order():
    found = read_parameters(b"; n*1=b; n*0*=utf-8''%41", 100)
    assert parameter(found, b"n") == (b"Ab", b"utf-8")


@given(st.binary(max_size=500))
def test_any_value_decodes(value: bytes):
    assert isinstance(decode_value(value), str)
    assert isinstance(decode_value(b"=?utf-8?b?" + value + b"?="), str)
    read_parameters(b";" + value, 100)
    strip_comments(value)
