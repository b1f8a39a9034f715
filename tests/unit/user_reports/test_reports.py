"""Messages that are given to learn from: taken in pieces, held no longer than they are of use, and sealed."""

from hashlib import sha256
from uuid import UUID

import pytest

from mailwarden.crypto.keyring import BrokenSeal, KeyRing
from mailwarden.user_reports.reports import MAX_CONTENTS, ContentsSeal, MessageCollector, ReportedMessage

FIRST, SECOND = UUID(int=1), UUID(int=2)


def taken(*pieces: bytes) -> ReportedMessage:
    intake = MessageCollector()
    for piece in pieces:
        intake.add(piece)
    return intake.finish()


def test_a_message_in_pieces_is_the_same_as_in_one():
    assert taken(b"Subject: x\r\n", b"\r\nhi") == ReportedMessage.of(b"Subject: x\r\n\r\nhi")


@pytest.mark.parametrize("more", [0, 1])
def test_contents_too_large_to_learn_from_are_counted_and_dropped(more):
    whole = b"x" * (MAX_CONTENTS + more)
    given = taken(whole[:500_000], whole[500_000:])
    assert (given.size, given.digest) == (len(whole), sha256(whole).digest())
    assert given.data == (None if more else whole)
    assert given == ReportedMessage.of(whole)


def test_sealed_contents_open_only_for_their_report_and_key():
    seal = ContentsSeal(KeyRing.of(b"k" * 32))
    sealed = seal.close(b"a message", FIRST)
    assert seal.open(sealed, FIRST) == b"a message"
    for opener, report, text in (
        (seal, SECOND, sealed),
        (ContentsSeal(KeyRing.of(b"o" * 32)), FIRST, sealed),
        (seal, FIRST, sealed[:-1]),
        (seal, FIRST, b""),
    ):
        with pytest.raises(BrokenSeal):
            opener.open(text, report)
