"""Multipart bodies, cut at every place, and compared with another reader of the same grammar."""

import itertools

import multipart
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.errors import MalformedMultipart, UnsupportedMediaType
from mailwarden.serving.form_data import FormDataReader, Part, boundary_of, parse_options
from tests.properties import examples

BOUNDARY = "frontier"
PARAMETERS = (
    b'--frontier\r\nContent-Disposition: form-data; name="parameters"\r\nContent-Type: application/json\r\n\r\n'
)
EMAIL = b'\r\n--frontier\r\ncontent-disposition: form-data; name=email; filename="a.eml"\r\n\r\n'
MESSAGE = b"Subject: x\r\n\r\nmid--frontier line\n--frontier\r\r\n--front\r\n--frontie"
BODY = PARAMETERS + b"{}" + EMAIL + MESSAGE + b"\r\n--frontier--\r\n"


def read(*chunks):
    """Return (name, payload) of every part."""
    reader, parts, payload = FormDataReader(BOUNDARY), [], b""
    for chunk in chunks:
        for event in reader.feed(chunk):
            if isinstance(event, Part):
                part, payload = event, b""
            elif event is None:
                assert part.size == len(payload)
                parts.append((part.name, payload))
            else:
                payload += event
    reader.finish()
    return parts


EXPECTED = [("parameters", b"{}"), ("email", MESSAGE)]


def test_the_parts_are_byte_exact():
    assert read(BODY) == EXPECTED


def test_every_split_in_two_reads_the_same():
    for cut in range(len(BODY) + 1):
        assert read(BODY[:cut], BODY[cut:]) == EXPECTED, cut


def test_single_bytes_read_the_same():
    assert read(*(BODY[i : i + 1] for i in range(len(BODY)))) == EXPECTED


@pytest.mark.parametrize("cut", [2, 4, 10])
def test_a_body_truncated_anywhere_is_refused(cut):
    for end in range(0, len(BODY) - 2, 1 if cut == 2 else cut):
        with pytest.raises(MalformedMultipart):
            read(BODY[:end])


def test_the_last_line_break_may_come_alone_or_not_at_all():
    assert read(BODY[:-2], b"\r\n") == read(BODY[:-1], b"\n") == read(BODY[:-2]) == EXPECTED


def test_one_line_break_before_the_first_boundary_is_tolerated():
    assert read(b"\r\n" + BODY) == EXPECTED


@pytest.mark.parametrize(
    "body",
    [
        b"This is a multi-part message.\r\n" + BODY,
        b"-- \r\n\r\n" + BODY,
        BODY + b"The end.\r\n\r\n",
        BODY[:-2] + b" \t\r\n",
        BODY[:-2] + b" ",
        BODY.replace(b"--frontier\r\n", b"--frontier \t \r\n"),
        BODY.replace(b"form-data;", b"form-data;\r\n\t"),
        BODY.replace(b"Content-Type: ", b"Content-Type:\r\n "),
    ],
)
def test_preamble_epilogue_and_padding_of_rfc_2046_are_accepted(body):
    for cut in range(len(body) + 1):
        assert read(body[:cut], body[cut:]) == EXPECTED, cut


AROUND = st.binary(max_size=60).filter(lambda text: b"--frontier" not in text)
BLANKS = st.text(" \t", max_size=9).map(str.encode)


@given(AROUND, AROUND, BLANKS, BLANKS, st.lists(st.integers(0, 400), max_size=5))
def test_a_preamble_an_epilogue_and_blanks_change_no_part(preamble, epilogue, first, last, cuts):
    body = BODY.replace(b"--frontier\r\n", b"--frontier" + first + b"\r\n")
    body = (preamble + b"\r\n" if preamble else b"") + body[:-2] + last + b"\r\n" + epilogue
    places = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    chunks = [body[begin:end] for begin, end in itertools.pairwise(places)]
    assert read(*chunks) == EXPECTED


@pytest.mark.parametrize(
    "body",
    [
        b"\n" + BODY,
        b"preamble " + BODY,
        b"--frontierX\r\n" + BODY,
        b"x" * 9000 + b"\r\n" + BODY,
        BODY + b"x" * 9000,
        BODY[:-2] + b"x",
        BODY[:-2] + b" x\r\n",
        BODY[:-2] + b"\n",
        BODY + BODY,
        BODY + b"\n--frontier\r\n",
        BODY.replace(b"--frontier\r\n", b"--frontier" + b" " * 300 + b"\r\n", 1),
        BODY.replace(b"--frontier\r\n", b"--frontier x\r\n", 1),
        BODY.replace(b"--frontier\r\n", b"--frontier -- \r\n", 1),
        BODY.replace(b"--frontier\r\n", b"--frontier-\r\n", 1),
        BODY.replace(b"--frontier\r\n", b"--frontier\n", 1),
        PARAMETERS + b"{}\r\n--frontierX\r\n" + BODY,
        BODY.replace(b"Content-Type", b" folded\r\nContent-Type"),
        BODY.replace(b"Content-Type", b"X: \x00\r\nContent-Type"),
        BODY.replace(b"Content-Type", b"X: \xff\r\nContent-Type"),
        BODY.replace(b"Content-Type", b"X: a\nY: b\r\nContent-Type"),
        BODY.replace(b"Content-Type", b"no colon\r\nContent-Type"),
        BODY.replace(b"Content-Type", b"Content-Type: text/plain\r\nContent-Type"),
        BODY.replace(b"Content-Type", b"X: " + b"a" * 9000 + b"\r\nContent-Type"),
        BODY.replace(b"Content-Type", b"".join(b"X%d: a\r\n" % i for i in range(20)) + b"Content-Type"),
        BODY.replace(b"Content-Type", b"Content-Transfer-Encoding: base64\r\nContent-Type"),
        BODY.replace(b"Content-Type", b"Content-Length: 3\r\nContent-Type"),
        BODY.replace(b"Content-Type", b"Content-Length: -2\r\nContent-Type"),
        BODY.replace(b"form-data", b"attachment", 1),
        BODY.replace(b'; name="parameters"', b""),
        BODY.replace(b'name="parameters"', b'name="parameters"; name="email"'),
        b"--frontier\r\n\r\nx\r\n--frontier--",
    ],
)
def test_ambiguous_form_data_is_rejected(body):
    with pytest.raises(MalformedMultipart):
        read(body)


def test_a_line_that_only_begins_like_a_boundary_is_refused_at_once_and_not_gathered():
    reader = FormDataReader(BOUNDARY)
    with pytest.raises(MalformedMultipart):
        list(reader.feed(PARAMETERS + b"{}\r\n--frontierX"))


def test_a_content_length_that_is_right_is_fine():
    assert read(BODY.replace(b"Content-Type", b"Content-Length: 2\r\nContent-Type"))[0][:2] == EXPECTED[0][:2]


@pytest.mark.parametrize(
    ("header", "boundary"),
    [
        ("multipart/form-data; boundary=abc", "abc"),
        ('Multipart/Form-Data;charset=utf-8; Boundary="a b"', "a b"),
        ("multipart/form-data;boundary=----WebKitFormBoundaryx1", "----WebKitFormBoundaryx1"),
        ("multipart/form-data; boundary=abc;", "abc"),
        ("multipart/form-data;; boundary=abc ; ", "abc"),
    ],
)
def test_the_boundary_is_read_from_the_content_type(header, boundary):
    assert boundary_of(header) == boundary


@pytest.mark.parametrize(
    "options",
    ["", "; boundary=", '; boundary=""', "; boundary=a; boundary=b", '; boundary="a ', "; boundary=" + "a" * 71, "; x"],
)
def test_a_content_type_without_a_usable_boundary_is_malformed(options):
    with pytest.raises(MalformedMultipart):
        boundary_of("multipart/form-data" + options)


@pytest.mark.parametrize("header", ["", "multipart/mixed; boundary=a", "application/json", "multipart/form-dataX"])
def test_another_media_type_is_not_supported(header):
    with pytest.raises(UnsupportedMediaType):
        boundary_of(header)


def test_a_quoted_option_may_hold_escaped_quotes():
    assert parse_options(r'form-data; name="a\"b"; x=y') == ("form-data", {"name": 'a"b', "x": "y"})


pieces = st.lists(
    st.sampled_from([b"\r", b"\n", b"\r\n", b"--", b"frontier", b"--frontier", b"\r\n--frontier", b"a", b"\x00\xff"]),
    max_size=12,
)


@examples(100)
@given(pieces, st.integers(1, 40))
def test_any_message_is_read_as_the_other_reader_reads_it(message, size):
    body = PARAMETERS + b"{}" + EMAIL + b"".join(message) + b"\r\n--frontier--\r\n"
    chunks = [body[i : i + size] for i in range(0, len(body), size)]
    try:
        ours = [part[1] for part in read(*chunks)]
    except MalformedMultipart:
        return  # we may refuse more, but what we accept must read the same
    theirs, payload = [], b""
    with multipart.PushMultipartParser(BOUNDARY) as parser:
        for event in parser.parse(body):
            if event is None:
                theirs.append(payload)
            elif isinstance(event, bytes):
                payload += event
            else:
                payload = b""
    assert ours == theirs
