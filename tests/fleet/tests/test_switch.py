"""The switch of the fleet test, with sockets instead of tap devices: frames arrive late and where they belong."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.fleet.switch import Switch

DELAY = 0.05
EVERYBODY = b"\xff" * 6
HOSTS = [bytes([2, 0, 0, 0, 0, number]) for number in range(3)]


@pytest.fixture
def ends() -> Iterator[list[socket.socket]]:
    """Return the ends of three hosts; the switch has the others."""
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in HOSTS]
    for ours, theirs in pairs:
        ours.settimeout(5.0)
        theirs.setblocking(False)
    switch = Switch([theirs.fileno() for _, theirs in pairs], DELAY)
    thread = threading.Thread(target=switch.run)
    thread.start()
    yield [ours for ours, _ in pairs]
    switch.stop()
    thread.join()
    for each in (each for pair in pairs for each in pair):
        each.close()


def frame(target: bytes, source: bytes, text: bytes) -> bytes:
    return target + source + b"\x08\x00" + text


def is_silent(end: socket.socket) -> bool:
    end.settimeout(DELAY * 3)
    try:
        end.recv(100)
    except TimeoutError:
        return True
    finally:
        end.settimeout(5.0)
    return False


def test_a_frame_for_everybody_reaches_every_other_host_late(ends: list[socket.socket]) -> None:
    began = time.monotonic()
    sent = frame(EVERYBODY, HOSTS[0], b"who has")
    ends[0].send(sent)
    assert [end.recv(100) for end in ends[1:]] == [sent, sent]
    assert time.monotonic() - began >= DELAY
    assert is_silent(ends[0])


def test_a_frame_for_a_known_host_reaches_it_alone(ends: list[socket.socket]) -> None:
    ends[1].send(frame(EVERYBODY, HOSTS[1], b"here I am"))
    for end in (ends[0], ends[2]):
        end.recv(100)
    sent = frame(HOSTS[1], HOSTS[0], b"hello")
    ends[0].send(sent)
    assert ends[1].recv(100) == sent
    assert is_silent(ends[2])


def test_an_address_that_moves_is_found_at_its_new_host(ends: list[socket.socket]) -> None:
    shared = HOSTS[2]
    for place in (1, 2):
        ends[place].send(frame(EVERYBODY, shared, b"mine"))
        for end in (each for each in ends if each is not ends[place]):
            end.recv(100)
    ends[0].send(frame(shared, HOSTS[0], b"hello"))
    assert ends[2].recv(100).endswith(b"hello")
    assert is_silent(ends[1])
