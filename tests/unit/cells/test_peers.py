"""The other cells: a caller chooses the path of a forwarded call alone, and no caller can eject a cell."""

import asyncio
import socket

import aiohttp
import pytest

from mailwarden.abby.cell_peers import DOWN_SECONDS, FAILURES, LAST_EJECTION, Peer, _failure, _url, open_socket
from mailwarden.errors import BadRequest


@pytest.fixture
def peer() -> Peer:
    return Peer("b", "https://cell-b.example", "s" * 32, None, 4)  # type: ignore[arg-type]


def test_the_path_of_a_call_stays_below_the_address_of_the_cell(peer: Peer) -> None:
    assert _url(peer, "/v1/messages?limit=1") == "https://cell-b.example/v1/messages?limit=1"
    assert _url(peer, "//evil.example/") == "https://cell-b.example//evil.example/"
    for path in (".evil.example/", "https://evil.example/", "@evil.example/", ":9/", "", "*", "/v1/\udcff"):
        with pytest.raises(BadRequest):
            _url(peer, path)


async def test_only_a_cell_without_a_connection_is_ejected(peer: Peer) -> None:
    for error, broken in (
        (aiohttp.InvalidURL("https://:"), True),
        (TimeoutError(), True),
        (aiohttp.SocketTimeoutError(), True),
        (aiohttp.ServerDisconnectedError(), False),
        (aiohttp.ClientOSError(), False),
    ):
        for _ in range(FAILURES):
            assert _failure(peer, error, broken=broken).code == "cell_unreachable"
        assert peer.usable, error
    for _ in range(FAILURES):
        _failure(peer, aiohttp.ConnectionTimeoutError(), broken=False)
    assert not peer.usable


async def test_a_broken_connection_of_a_whole_message_counts(peer: Peer) -> None:
    for _ in range(FAILURES):
        _failure(peer, aiohttp.ClientOSError(), broken=True)
    assert not peer.usable


async def test_a_cell_is_down_from_its_ejection_until_it_answers(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0

    def is_up() -> bool:
        return peer.up

    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    assert is_up(), "a cell that was never asked"
    for number in range(FAILURES):
        assert is_up(), number
        peer.failed("refused")
    assert not is_up()
    now += LAST_EJECTION
    assert peer.usable
    assert not is_up(), "it has not answered"
    peer.failed("refused")
    now += DOWN_SECONDS - 1
    assert not is_up()
    now += 2
    assert is_up(), "nobody has asked it for a minute"
    peer.failed("refused")
    assert not is_up()
    peer.answered()
    assert is_up()


def test_a_host_that_is_gone_is_noticed_within_seconds() -> None:
    info = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 1))
    with open_socket(info) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000
