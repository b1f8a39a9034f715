"""One sender per message: what two readers take for different senders is named, and what honest mail has is not."""

from pathlib import Path

import pytest

from mailwarden.message.sender import find_envelope_doubts, find_sender_doubts
from mailwarden.message.structure import check_structure

GOOD_MAIL = sorted((Path(__file__).parents[2] / "good_mail").glob("*.eml"))
REST = b"To: bob@south.example\r\nSubject: Minutes\r\n\r\nHello\r\n"


def doubts_of(raw: bytes) -> tuple[str, ...]:
    tree = check_structure(raw).tree
    assert tree is not None
    return find_sender_doubts(raw, tree.nodes[0].body, tree.nodes[0].fields)


@pytest.mark.contract("8 One sender identity per message")
@pytest.mark.parametrize(
    "head",
    [
        b"From: a@pass.example\r\nFrom: b@company.example\r\n",
        b"From: a@pass.example\r\nFrom: a@pass.example\r\n",
        b"From : b@company.example\r\n",
        b"From\t: b@company.example\r\nFrom: a@pass.example\r\n",
        b"From\0: b@company.example\r\n",
        b"\xef\xbb\xbfFrom: b@company.example\r\nFrom: a@pass.example\r\n",
        b"X: y\rFrom: b@company.example\r\nFrom: a@pass.example\r\n",
        b"X: y\x0bFrom: b@company.example\r\nFrom: a@pass.example\r\n",
        b"X: y\xe2\x80\xa8From: b@company.example\r\nFrom: a@pass.example\r\n",
        b"X: y\0From: b@company.example\r\nFrom: a@pass.example\r\n",
        b"X: y\r\n \r\nFrom: b@company.example\r\n",
        b"X: y\r\n\t\r\nFrom: b@company.example\r\n",
        b"X: y\r\n\r\r\nFrom: b@company.example\r\n",
        b"X: y\r\nThis line is no field\r\nFrom: b@company.example\r\n",
        b"X y: z\r\nFrom: b@company.example\r\n",
        b"From: a@pass.example,\r\n \r\n b@company.example\r\n",
        b"\r\nFrom: b@company.example\r\n",
        b"X: y\r\nX: y\n\nFrom: b@company.example\r\n",
        b"From >: b@company.example\r\nFROM : a@pass.example\r\n",
    ],
)
def test_a_header_with_two_readings_of_from_is_doubtful(head):
    assert doubts_of(head + REST)


@pytest.mark.parametrize(
    "value",
    [
        b"<a@pass.example> <b@company.example>",
        b"a@pass.example, b@company.example",
        b'"b@company.example", <a@pass.example>',
        b"<a@pass.example b@company.example>",
        b"a@pass.example b@company.example",
        b"Boss <boss @company.example>",
        b"Boss <boss@ company.example>",
        b"<b@company.example@pass.example>",
        b"<@pass.example:b@company.example>",
        b'<"b@company.example"@pass.example>',
        b"a@pass.example(b@company.example",
        b"b@company.example <>",
        b"b(x@pass.example)@company.example",
        b"Boss <a@pass.example> b@company.example",
        b"b@company.example: a@pass.example;",
        b"=?utf-8?q?b=40company.example=2C?= <a@pass.example>",
        b"=?utf-8?q?Boss_=3Cb=40company.example=3E?= <a@pass.example>",
        b"=?utf-8?b?Ym9zc0Bjb21wYW55LmV4YW1wbGUA?=@pass.example",
        b"=?utf-8?q?b=40company.example?=",
        b"<=?utf-8?q?b?=@company.example>",
        b"Boss <b@company.example\0.pass.example>",
        b"Boss\x07 <a@pass.example>",
        b"Boss <a@pass.example\xe2\x80\xae>",
        b"Boss <b@\xff\xfecompany.example>",
        "Boss <b@ｃompany.example>".encode(),
        "Boss <b@company。example>".encode(),
        b'"Boss <b@company.example>',
        b"Boss <b@company.example> <>, <a@pass.example>",
        b"x" * 9_000,
    ],
)
def test_a_value_with_two_readings_is_doubtful(value):
    assert doubts_of(b"From: " + value + b"\r\n" + REST)


@pytest.mark.parametrize(
    "value",
    [
        b"ada@north.example",
        b"<ada@north.example>",
        b"Ada Lovelace <ada@north.example>",
        b'"Lovelace, Ada" <ada@north.example>',
        b"Lovelace, Ada <ada@north.example>",
        b'"Ada \\"the\\" Lovelace" <ada@north.example>',
        b"ada@north.example (Ada Lovelace)",
        b"Ada (at work) <ada@north.example>",
        b"ada@north.example <ada@north.example>",
        b'"eve@south.example via List" <list@north.example>',
        b"eve@south.example via List <list@north.example>",
        b"Ada <ada@north.example>, Bob <bob@north.example>",
        b"Friends: ada@north.example, bob@mail.north.example;",
        b"Undisclosed senders:;",
        b"=?utf-8?q?Lovelace=2C_Ada?= <ada@north.example>",
        b"=?utf-8?q?ada=40north.example?= <ada@north.example>",
        b"=?utf-8?b?QWRh?=\r\n =?utf-8?b?IEw=?=\r\n <ada@north.example>",
        "Ada <ada@bücher.example>".encode(),
        b"Ada <ada@[192.0.2.1]>",
        b'"ada.l"@north.example',
        b"root",
        b"Mail Delivery System <>",
        b"",
    ],
)
def test_a_legal_from_is_one_sender(value):
    assert doubts_of(b"From: " + value + b"\r\n" + REST) == ()


@pytest.mark.parametrize(
    "head",
    [
        b"From ada@north.example Mon Jan  5 10:00:00 2026\r\nFrom: ada@north.example\r\n",
        b"X-Report: first\r\n \r\n second\r\nFrom: ada@north.example\r\n",
        b"Subject: Fwd:\r\n From: eve@south.example\r\nFrom: ada@north.example\r\n",
        b"Resent-From: eve@south.example\r\nSender: eve@south.example\r\nFrom: ada@north.example\r\n",
        b"Reply-To: eve@south.example\r\nFrom: ada@north.example\r\n",
        b"X: y\r\n",
    ],
)
def test_a_regular_header_has_one_sender(head):
    assert doubts_of(head + REST) == ()


def test_a_from_in_the_body_is_no_sender():
    assert doubts_of(b"From: ada@north.example\r\n" + REST + b"From: eve@south.example\r\n\r\nFrom : x@y.example") == ()


def test_bare_line_feeds_are_no_doubt():
    raw = (b"From: ada@north.example\r\n" + REST + b"> From: eve@south.example\r\n").replace(b"\r\n", b"\n")
    assert doubts_of(raw) == ()


def test_no_good_mail_has_an_ambiguous_sender():
    assert [path.name for path in GOOD_MAIL if doubts_of(path.read_bytes())] == []


@pytest.mark.parametrize("address", ["a@b@c.example", '"a b"@c.example', '"a@b"@c.example', "a,b@c.example", "a@b(c)"])
def test_an_envelope_sender_of_two_readings_is_doubtful(address):
    assert find_envelope_doubts(address)


@pytest.mark.parametrize(
    "address", ["", "root", "a@b.example", "prvs=1=a@b.example", "a@[192.0.2.1]", '"a.b"@c.example']
)
def test_a_plain_envelope_sender_is_no_doubt(address):
    assert find_envelope_doubts(address) == ()
