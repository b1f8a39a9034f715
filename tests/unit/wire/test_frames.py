"""The frames between abby and guard: what is written is read, and what breaks a rule is an error, never a guess."""

import struct
from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.wire import frames
from mailwarden.wire.frames import FrameDecoder, FrameError, Hello, HelloAnswer, Kind, ScanHead

HEAD = ScanHead(UUID(int=7), 5_000, 100, 2_000, "id", "00-trace", watched=True, stored=False)
OF_MESSAGE = sorted(set(Kind) - {Kind.HELLO, Kind.PING, Kind.PONG, Kind.GOODBYE})
some_frames = st.lists(
    st.tuples(st.sampled_from(OF_MESSAGE), st.integers(1, frames.LAST_STREAM), st.binary(max_size=300))
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(data) + 1) for place in places} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@given(some_frames, st.lists(st.integers(0, 10_000), max_size=20))
def test_frames_arrive_whole_wherever_the_network_cuts_them(sent, places):
    decoder = FrameDecoder()
    stream = b"".join(frames.encode(kind, number, payload) for kind, number, payload in sent)
    assert [frame for piece in cut(stream, places) for frame in decoder.feed(piece)] == sent


@given(st.binary(max_size=2_000), st.lists(st.integers(0, 2_000), max_size=5))
def test_any_bytes_are_frames_or_an_error(data, places):
    decoder = FrameDecoder()
    size = 0
    try:
        for piece in cut(data, places):
            for kind, stream, payload in decoder.feed(piece):
                assert kind in set(Kind)
                assert 0 <= stream <= frames.LAST_STREAM
                size += frames.HEADER_SIZE + len(payload)
    except FrameError:
        pass
    assert size <= len(data)


@pytest.mark.parametrize(
    ("header", "kind"),
    [
        ((frames.MAX_PAYLOAD + 1, Kind.DATA, 1), "too_large"),
        ((2**32 - 1, Kind.DATA, 1), "too_large"),
        ((0, 0, 1), "unknown_kind"),
        ((0, max(Kind) + 1, 1), "unknown_kind"),
        ((0, Kind.DATA, 0), "bad_stream"),
        ((0, Kind.HELLO, 1), "bad_stream"),
        ((0, Kind.DATA, frames.LAST_STREAM + 1), "bad_stream"),
    ],
)
def test_a_header_that_breaks_a_rule_is_an_error_before_its_payload(header, kind):
    with pytest.raises(FrameError) as caught:
        FrameDecoder().feed(struct.pack(">IBI", *header))
    assert caught.value.kind == kind


def test_a_payload_beyond_the_limit_is_not_written():
    frames.encode(Kind.DATA, 1, b"x" * frames.MAX_PAYLOAD)
    with pytest.raises(ValueError, match="do not fit"):
        frames.encode(Kind.DATA, 1, b"x" * (frames.MAX_PAYLOAD + 1))


def test_a_head_arrives_with_the_bytes_behind_it():
    frame = frames.encode_open(3, HEAD, b"message")
    assert frame is not None
    ((kind, stream, payload),) = FrameDecoder().feed(frame)
    assert (kind, stream, frames.decode_open(payload)) == (Kind.OPEN, 3, (HEAD, b"message"))


def test_a_message_that_does_not_fit_into_one_frame_is_left_to_others():
    assert frames.encode_open(3, HEAD, b"x" * frames.MAX_PAYLOAD) is None


@pytest.mark.parametrize(("pause", "expected"), [(None, None), (0, 0), (7, 7), (100_000, 65_534)])
@pytest.mark.parametrize("size", [0, 100, 65_532, 65_533, 300_000])
def test_an_answer_of_any_length_arrives(pause, expected, size):
    body = b"x" * size
    decoded = [each for frame in frames.encode_answer(5, 503, pause, body) for each in FrameDecoder().feed(frame)]
    assert {kind for kind, _, _ in decoded[:-1]} <= {Kind.PART}
    assert decoded[-1][0] == Kind.ANSWER
    assert frames.decode_answer(b"".join(payload for _, _, payload in decoded)) == (503, expected, body)


@given(st.binary(max_size=300))
def test_a_payload_that_cannot_be_read_is_an_error(payload):
    for decode in (
        frames.decode_open,
        frames.decode_hello,
        frames.decode_hello_answer,
        frames.decode_credit,
        frames.decode_answer,
    ):
        with suppress(FrameError):
            decode(payload)


@pytest.mark.parametrize(
    "payload",
    [
        b"{}",
        b'{"versions":[]}',
        b'{"versions":["1"]}',
        b'{"versions":[' + b"1," * 40 + b"1]}",
        b"[" * 10_000,
    ],
)
def test_a_greeting_that_is_none_is_an_error(payload):
    with pytest.raises(FrameError):
        frames.decode_hello(payload)


def test_greetings_may_have_fields_of_later_versions():
    assert frames.decode_hello(b'{"versions":[1,2],"later":true}') == Hello((1, 2))
    answer = b'{"version":1,"instance":"a","later":{}}'
    assert frames.decode_hello_answer(answer) == HelloAnswer(1, "a")


@pytest.mark.parametrize(("offered", "selected"), [((1,), 1), ((3, 2, 1), 1), ((2, 3), None)])
def test_the_newest_common_version_is_selected(offered, selected):
    assert frames.select_version(offered) == selected
