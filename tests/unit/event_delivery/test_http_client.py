"""Webhooks over real sockets: no SSRF case connects, and every other response is a failure with its reason."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from mailwarden.cli.certificates import make_certificates
from mailwarden.event_delivery import http_client
from mailwarden.event_delivery.addresses import AddressRules
from mailwarden.event_delivery.bounded_connection import MAX_INTERIM
from mailwarden.event_delivery.http_client import (
    DeliveryFailed,
    HttpClient,
    client_trust,
    open_http_client,
)

LOOPBACK = ("127.0.0.1/32",)


@dataclass
class Receiver:
    """A listening socket that counts connections and answers each request with the same bytes."""

    port: int = 0
    response: bytes = b"HTTP/1.1 204 No Content\r\n\r\n"
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
                self.requests.append(head + await reader.readexactly(length))
                writer.write(self.response)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()


def answers(*addresses: Sequence[str]) -> Callable[[str], Awaitable[Sequence[str]]]:
    """Return a resolver that gives one answer after the other, and then the last one again."""
    left = list(addresses)

    async def lookup(_: str) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return lookup


@asynccontextmanager
async def client(
    *networks: str, lookup: Callable[[str], Awaitable[Sequence[str]]] | None = None
) -> AsyncIterator[HttpClient]:
    async with open_http_client(AddressRules.of(networks), client_trust(None), lookup) as opened:
        yield opened


SSRF = [
    ("http", "127.0.0.1"),
    ("https", "127.0.0.1"),
    ("https", "localhost"),
    ("http", "localhost"),
    ("https", "[::1]"),
    ("https", "[::ffff:127.0.0.1]"),
    ("https", "[::ffff:7f00:1]"),
    ("https", "[64:ff9b::7f00:1]"),
    ("https", "[2002:7f00:1::]"),
    ("https", "0.0.0.0"),
    ("https", "127.127.127.127"),
]


@pytest.mark.parametrize(("scheme", "host"), SSRF)
async def test_no_connection_reaches_an_internal_address(scheme: str, host: str, receiver: Receiver) -> None:
    async with client() as http:
        with pytest.raises(DeliveryFailed):
            await http.post(f"{scheme}://{host}:{receiver.port}/", {}, b"{}")
    assert receiver.connections == 0


async def test_a_rebinding_name_reaches_no_internal_address(receiver: Receiver) -> None:
    # The first answer is public; nothing listens there, and the address is never asked for again.
    lookup = answers(["192.88.99.1"], ["127.0.0.1"], ["127.0.0.1"])
    async with client(lookup=lookup) as http:
        for _ in range(3):
            with pytest.raises(DeliveryFailed):
                await http.post(f"https://rebind.example:{receiver.port}/", {}, b"{}")
    assert receiver.connections == 0


async def test_one_internal_address_refuses_the_whole_answer(receiver: Receiver) -> None:
    async with client(lookup=answers(["93.184.216.34", "127.0.0.1"])) as http:
        with pytest.raises(DeliveryFailed, match="must not reach"):
            await http.post(f"https://mixed.example:{receiver.port}/", {}, b"{}")
    assert receiver.connections == 0


async def test_no_socket_is_made_for_an_address_the_resolver_let_pass(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_client.HttpClient, "_check_literal", lambda *_: None)
    async with client() as http:
        with pytest.raises(DeliveryFailed):
            await http.post(f"https://127.0.0.1:{receiver.port}/", {}, b"{}")
    assert receiver.connections == 0


async def test_a_proxy_of_the_environment_is_ignored(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{receiver.port}")
    async with client(lookup=answers(["10.0.0.1"])) as http:
        with pytest.raises(DeliveryFailed, match="must not reach"):
            await http.post("https://hook.example/", {}, b"{}")
    assert receiver.connections == 0


async def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    other = Receiver()
    server = await asyncio.start_server(other.serve, "127.0.0.1", 0)
    location = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/".encode()
    receiver.response = b"HTTP/1.1 307 Moved\r\nContent-Length: 0\r\nLocation: " + location + b"\r\n\r\n"
    async with client(*LOOPBACK) as http:
        with pytest.raises(DeliveryFailed, match="Redirects are not followed"):
            await http.post(f"http://127.0.0.1:{receiver.port}/", {}, b"{}")
    server.close()
    assert (receiver.connections, other.connections) == (1, 0)


async def test_http_to_a_public_address_is_refused() -> None:
    async with client(*LOOPBACK, lookup=answers(["93.184.216.34"])) as http:
        with pytest.raises(DeliveryFailed, match="outside of the configured networks"):
            await http.post("http://hook.example/", {}, b"{}")


async def test_a_configured_private_receiver_gets_the_body_and_the_name(receiver: Receiver) -> None:
    async with client(*LOOPBACK, lookup=answers(["127.0.0.1"])) as http:
        for _ in range(3):
            await http.post(f"http://hook.internal:{receiver.port}/x?y=1", {"webhook-id": "1"}, b'{"a":1}')
    assert receiver.connections == 1  # the connection is used again
    head, _, body = receiver.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /x?y=1 HTTP/1.1")
    assert f"Host: hook.internal:{receiver.port}".encode() in head
    assert b"webhook-id: 1" in head
    assert body == b'{"a":1}'


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n", "answered 500"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "answered 404"),
        (b"\x00\xff garbage\r\n\r\n", "cannot be reached"),
        (b"", "cannot be reached"),
    ],
)
async def test_other_responses_are_failures(response: bytes, expected: str, receiver: Receiver) -> None:
    receiver.response = response
    server = await asyncio.start_server(receiver.serve if response else _hang_up, "127.0.0.1", 0)
    async with client(*LOOPBACK) as http:
        with pytest.raises(DeliveryFailed, match=expected):
            await http.post(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", {}, b"{}")
    server.close()


async def _hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def test_gone_and_retry_after_are_understood(receiver: Receiver) -> None:
    async with client(*LOOPBACK) as http:
        url = f"http://127.0.0.1:{receiver.port}/"
        receiver.response = b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"
        with pytest.raises(DeliveryFailed) as gone:
            await http.post(url, {}, b"{}")
        assert gone.value.gone
        later = format_datetime(datetime.now(UTC) + timedelta(seconds=90)).encode()
        overflow = b"Mon, 01 Jan 2024 00:00:00 +99999999999999999999"
        for text, least, most in (
            (b"120", 120, 120),
            (b"999999999999", 3600, 3600),
            (later, 80, 91),
            (b"soon", 0, 0),
            (overflow, 0, 0),
        ):
            receiver.response = b"HTTP/1.1 429 Slow\r\nContent-Length: 0\r\nRetry-After: " + text + b"\r\n\r\n"
            with pytest.raises(DeliveryFailed) as slow:
                await http.post(url, {}, b"{}")
            assert least <= slow.value.retry_after <= most


async def test_a_long_response_is_not_read_to_its_end(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "MAX_RESPONSE", 10)
    receiver.response = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 100
    async with client(*LOOPBACK) as http:
        await http.post(f"http://127.0.0.1:{receiver.port}/", {}, b"{}")


async def test_the_certificate_and_its_name_are_checked(receiver: Receiver, tmp_path: Path) -> None:
    make_certificates(tmp_path, ["hook.internal"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "abby.crt", tmp_path / "abby.key")
    names: list[str | None] = []
    context.sni_callback = lambda _, name, __: names.append(name)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    networks, lookup = AddressRules.of(LOOPBACK), answers(["127.0.0.1"])
    async with open_http_client(networks, client_trust(tmp_path / "ca.crt"), lookup) as http:
        await http.post(f"https://hook.internal:{port}/", {}, b"{}")
        with pytest.raises(DeliveryFailed, match="certificate is invalid"):
            await http.post(f"https://other.internal:{port}/", {}, b"secret")
    async with open_http_client(networks, client_trust(None), lookup) as http:
        with pytest.raises(DeliveryFailed, match="certificate is invalid"):
            await http.post(f"https://hook.internal:{port}/", {}, b"secret")
    server.close()
    assert len(receiver.requests) == 1
    assert names == ["hook.internal", "other.internal", "hook.internal"]


@dataclass
class Flood:
    """A receiver that sends the head once and then the same bytes for as long as the connection is open."""

    head: bytes
    again: bytes
    port: int = 0
    sent: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.head)
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(self.again)
                self.sent += len(self.again)
                await writer.drain()
        writer.close()


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "again"),
    [
        (b"", b"HTTP/1.1 102 Processing\r\n\r\n" * 1_000),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: " + b"x" * 8_000 + b"\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n" * 1_000),
        (b"HTTP/1.1 200 OK\r\nX-A: ", b"b" * 10_000),
        (CHUNKED + b"1;a=", b"x" * 10_000),
        (CHUNKED + b"0\r\n", b"X-A: b\r\n" * 1_000),
        (b"", b"\r\n" * 10_000),
    ],
)
async def test_a_flood_beside_the_body_ends_long_before_the_deadline(head: bytes, again: bytes) -> None:
    flood = Flood(head, again)
    server = await asyncio.start_server(flood.serve, "127.0.0.1", 0)
    began = time.monotonic()
    async with client(*LOOPBACK) as http:
        with pytest.raises(DeliveryFailed, match="cannot be reached"):
            await http.post(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", {}, b"{}")
    server.close()
    assert time.monotonic() - began < http_client.DEADLINE / 3
    assert flood.sent < 16 * 1024 * 1024  # with all that the buffers of two sockets hold


async def test_a_few_interim_responses_are_skipped(receiver: Receiver) -> None:
    receiver.response = b"HTTP/1.1 103 Early Hints\r\n\r\n" * MAX_INTERIM + receiver.response
    async with client(*LOOPBACK) as http:
        for _ in range(3):
            await http.post(f"http://127.0.0.1:{receiver.port}/", {}, b"{}")
    assert receiver.connections == 1, "the bounds are those of one exchange"


async def test_an_idle_connection_is_not_read_without_end() -> None:
    flood = Flood(
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" * 1_000
    )
    server = await asyncio.start_server(flood.serve, "127.0.0.1", 0)
    async with client(*LOOPBACK) as http:
        await http.post(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", {}, b"{}")
        await asyncio.sleep(0.5)
        sent = flood.sent
        await asyncio.sleep(0.5)
        assert flood.sent == sent < 16 * 1024 * 1024
    server.close()


async def test_a_dripping_body_ends_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "DEADLINE", 0.5)

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.05)
        writer.close()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    async with client(*LOOPBACK) as http:
        with pytest.raises(DeliveryFailed, match="did not answer within"):
            await http.post(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", {}, b"{}")
    server.close()
    await asyncio.sleep(0.1)  # the receiver notices the end
