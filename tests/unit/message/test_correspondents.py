"""The head of a message offers an envelope."""

import time

from mailwarden.message.correspondents import MAX_RECIPIENTS, correspondents


def test_from_to_and_cc_are_offered_each_once():
    head = b'From: "Doe, Ann" <ann@a.example>\r\nTo: b@b.example,\r\n c@c.example\r\n'
    head += b"Cc: <B@b.example>, b@b.example\r\n\r\nTo: no@body.example"
    assert correspondents(head) == ("ann@a.example", ("b@b.example", "c@c.example", "B@b.example"))


def test_a_message_without_them_offers_nothing():
    assert correspondents(b"Subject: x\r\n\r\nFrom: a@b.example\r\n") == ("", ())
    assert correspondents(b"") == ("", ())


def test_it_is_bounded():
    many = b", ".join(b"u%d@x.example" % number for number in range(1_000))
    started = time.process_time()
    assert len(correspondents(b"To: " + many + b"\r\n\r\n")[1]) == MAX_RECIPIENTS
    correspondents(b"From: " + b"<" * 600_000)
    correspondents(b"To: a@b.example\r\n" * 50_000)
    assert time.process_time() - started < 2
