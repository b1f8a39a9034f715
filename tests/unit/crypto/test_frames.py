"""Frames: what is not exactly what was sealed is refused, whatever was done to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.crypto.frames import FRAME, HEAD, TAG, FrameOpener, seal_frames
from mailwarden.crypto.keyring import BrokenSeal, KeyRing
from tests.properties import examples

RING, BOUND = KeyRing.of(b"k" * 32), b"tenant and address"


def sealed(message: bytes, piece: int = 100_000) -> list[bytes]:
    pieces = [message[start : start + piece] for start in range(0, len(message), piece)]
    return list(seal_frames(RING, BOUND, pieces))


def opened(kept: list[bytes], ring: KeyRing = RING, bound: bytes = BOUND) -> bytes:
    opener = FrameOpener(ring, bound)
    return b"".join([*(frame for chunk in kept for frame in opener.take(chunk)), opener.finish()])


@pytest.mark.parametrize("size", [0, 1, FRAME - 1, FRAME, FRAME + 1, 2 * FRAME, 3 * FRAME + 7])
def test_a_message_of_any_size_comes_back_as_it_was(size: int):
    message = bytes(index % 251 for index in range(size))
    kept = sealed(message)
    assert opened(kept) == message
    assert sum(map(len, kept)) == HEAD + size + TAG * max(1, -(-size // FRAME))
    assert all(len(each) <= FRAME + TAG for each in kept)


@examples(50)
@given(st.lists(st.binary(max_size=300_000), max_size=4), st.integers(1, 400_000))
def test_how_it_comes_in_pieces_does_not_matter(pieces: list[bytes], piece: int):
    kept = b"".join(seal_frames(RING, BOUND, pieces))
    assert opened([kept[start : start + piece] for start in range(0, len(kept), piece)]) == b"".join(pieces)


def test_two_times_the_same_message_is_not_sealed_alike():
    assert sealed(b"hello") != sealed(b"hello")


@pytest.mark.parametrize("place", [0, 4, HEAD - 1, HEAD, HEAD + FRAME, HEAD + FRAME + TAG, -1])
def test_one_bit_that_is_not_as_it_was_is_refused(place: int):
    kept = bytearray(b"".join(sealed(b"x" * (2 * FRAME))))
    kept[place] ^= 1
    with pytest.raises(BrokenSeal):
        opened([bytes(kept)])


def test_a_message_that_is_cut_off_is_refused_wherever_it_is_cut():
    kept = sealed(b"x" * (2 * FRAME + 9))
    whole = b"".join(kept)
    for end in (0, 3, HEAD, HEAD + TAG, len(kept[0]) + len(kept[1]), len(whole) - len(kept[-1]), len(whole) - 1):
        with pytest.raises(BrokenSeal):
            opened([whole[:end]])


def test_frames_that_are_exchanged_doubled_or_left_out_are_refused():
    head, first, second, last = sealed(b"x" * FRAME + b"y" * FRAME + b"z")
    for changed in (
        [head, second, first, last],
        [head, first, first, second, last],
        [head, second, last],
        [head, first, second, last, last],
        [head, first, second, last + b"\0"],
    ):
        with pytest.raises(BrokenSeal):
            opened(changed)


def test_a_frame_of_another_message_is_refused():
    one, other = sealed(b"x" * FRAME + b"z"), sealed(b"x" * FRAME + b"z")
    with pytest.raises(BrokenSeal):
        opened([one[0], other[1], one[2]])


def test_it_opens_for_its_tenant_under_its_address_and_with_its_key_alone():
    kept = sealed(b"hello")
    for given_otherwise in ({"bound": b"another"}, {"ring": KeyRing.of(b"K" * 32)}):
        with pytest.raises(BrokenSeal):
            opened(kept, **given_otherwise)
