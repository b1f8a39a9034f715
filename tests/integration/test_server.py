"""The hardened server over real connections: slow callers, too many of them, and the stop."""

import asyncio
import socket
import time

import pytest
import uvloop
from aiohttp import web

from mailwarden.serving.http_app import HttpApp, Route
from mailwarden.serving.server import Limits, Server, serving
from mailwarden.settings.shared import Listen, Networks
from mailwarden.telemetry.metrics import Metrics
from tests.waiting import eventually

PATIENCE = 20.0
GET = b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n"


async def answer_ok(call):
    return web.Response(text="ok")


@pytest.fixture
def late():
    """Return an event that is set when a request for `/late` or `/never` has arrived."""
    return asyncio.Event()


@pytest.fixture
async def app(late):
    async def answer_late(call):
        late.set()
        await asyncio.sleep(0.5)  # longer than the stop needs to begin
        return web.Response(text="late")

    async def answer_never(call):
        late.set()
        await asyncio.sleep(600)

    routes = [("/ok", answer_ok), ("/late", answer_late), ("/never", answer_never)]
    return HttpApp([Route("GET", path, handler) for path, handler in routes], Metrics())


async def exchange(reader, writer, raw):
    writer.write(raw)
    return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)


async def test_a_slow_request_head_has_a_deadline(app):
    async with serving(app, Listen(), None, Limits(header_timeout_ms=300)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        began = time.monotonic()
        reading = asyncio.create_task(reader.read())
        for byte in b"GET /ok":  # all of it before the deadline: bytes to a closed connection would reset it
            writer.write(bytes([byte]))
            await asyncio.sleep(0.02)
        answer = await asyncio.wait_for(reading, PATIENCE)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b'"error":"request_timeout"' in answer
        assert time.monotonic() - began < 10
        writer.close()


def test_half_a_head_that_comes_with_the_connection_is_not_waited_for_either():
    async def scenario():
        app = HttpApp([Route("GET", "/ok", answer_ok)], Metrics())
        async with serving(app, Listen(), None, Limits(header_timeout_ms=300)) as port:
            # Both are in the kernel before the server's loop runs again, so it reads them in one turn.
            with socket.create_connection(("127.0.0.1", port)) as early:
                early.sendall(b"GET /ok HTTP/1.1\r\nHos")
                early.setblocking(False)
                return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(early, 65_536), PATIENCE)

    assert uvloop.run(scenario()).startswith(b"HTTP/1.1 408")


async def test_a_second_head_on_a_kept_connection_has_the_same_deadline(app):
    async with serving(app, Listen(), None, Limits(header_timeout_ms=300)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert (await exchange(reader, writer, GET % b"ok")).startswith(b"HTTP/1.1 200")
        await reader.readexactly(2)
        await asyncio.sleep(0.5)  # an idle connection may stay longer than a head may take
        assert (await exchange(reader, writer, GET % b"ok")).startswith(b"HTTP/1.1 200")
        await reader.readexactly(2)
        assert (await exchange(reader, writer, b"GET /o")).startswith(b"HTTP/1.1 408")
        writer.close()


async def test_an_old_connection_closes_with_its_next_answer(app):
    async with serving(app, Listen(), None, Limits(max_age=0.3)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert b"Connection: close" not in await exchange(reader, writer, GET % b"ok")
        await reader.readexactly(2)
        await asyncio.sleep(0.4)
        assert b"Connection: close" in await exchange(reader, writer, GET % b"ok")
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b"ok"
        writer.close()


async def test_connections_beyond_the_limit_get_503(app):
    async with serving(app, Listen(), None, Limits(max_connections=2)) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for reader, writer in held:
            await exchange(reader, writer, GET % b"ok")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b'"error":"overloaded"' in answer
        for _, other in [*held, (reader, writer)]:
            other.close()


async def test_one_address_cannot_take_all_connections(app):
    limits = Limits(max_connections=100, max_connections_per_address=2)
    async with serving(app, Listen(), None, limits) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        for reader, writer in held:
            await exchange(reader, writer, GET % b"ok")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert (await asyncio.wait_for(reader.read(), PATIENCE)).startswith(b"HTTP/1.1 503")
        assert app.refused_connections.labels("address")._value.get() == 1
        other = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        assert (await exchange(*other, GET % b"ok")).startswith(b"HTTP/1.1 200"), "another address is served"
        for _, each in [*held, (reader, writer)]:
            each.close()
            await each.wait_closed()

        async def is_served():
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                return (await exchange(reader, writer, GET % b"ok")).startswith(b"HTTP/1.1 200")
            finally:
                writer.close()

        await eventually(is_served)  # closed connections no longer count
        other[1].close()


@pytest.mark.parametrize(
    ("peer", "counted"),
    [
        (("192.0.2.7", 1), "192.0.2.7"),
        (("::ffff:192.0.2.7", 1, 0, 0), "192.0.2.7"),
        (("2001:db8::1", 1, 0, 0), "2001:db8::/64"),
        (("10.0.0.10", 1), None),
        ("", None),
        (None, None),
    ],
)
def test_connections_are_counted_by_address_and_proxies_are_not(peer: object, counted: str | None):
    app = HttpApp([], Metrics(), proxies=Networks.of(["10.0.0.10/32"]))
    transport = asyncio.BaseTransport({"peername": peer})
    assert app.counted_address(transport) == counted


async def test_the_stop_finishes_the_work_in_hand_and_refuses_new_work(app, late):
    async with serving(app, Listen(), None, Limits(), grace_ms=20_000) as port:
        busy = await asyncio.open_connection("127.0.0.1", port)
        idle = await asyncio.open_connection("127.0.0.1", port)
        await exchange(*idle, GET % b"ok")
        await idle[0].readexactly(2)
        busy[1].write(GET % b"late")
        await late.wait()

        async def ask_while_stopping():
            await asyncio.sleep(0.1)
            return await exchange(*idle, GET % b"ok")

        asking = asyncio.create_task(ask_while_stopping())
        began = time.monotonic()
    assert 0.2 < time.monotonic() - began < 10
    assert (await asking).startswith(b"HTTP/1.1 503")
    assert (await busy[0].read()).endswith(b"late")
    with pytest.raises(OSError, match=r"refused|failed"):
        await asyncio.open_connection("127.0.0.1", port)
    busy[1].close()
    idle[1].close()


async def test_work_that_outlasts_the_grace_period_is_cut(app, late):
    async with serving(app, Listen(), None, Limits(), grace_ms=50) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET % b"never")
        await late.wait()
        began = time.monotonic()
    assert time.monotonic() - began < 60  # of the ten minutes that the work would take
    writer.close()


async def test_a_version_that_is_not_spoken_is_answered_in_one_that_is(app):
    async with serving(app, Listen(), None, Limits()) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert (await exchange(reader, writer, b"GET /ok HTTP/2.0\r\nHost: a\r\n\r\n")).startswith(b"HTTP/1.0 400")
        writer.close()


async def test_a_head_that_never_ends_is_refused_at_its_limit(app):
    async with serving(app, Listen(), None, Limits(max_headers=4_000)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        reading = asyncio.create_task(reader.read())
        writer.write(b"GET /ok HTTP/1.1\r\nHost: a\r\n")
        for number in range(60):
            writer.write(b"X-%d: %s\r\n" % (number, b"a" * 1_000))
            await asyncio.sleep(0.005)
            if reading.done():
                break
        assert (await asyncio.wait_for(reading, PATIENCE)).startswith(b"HTTP/1.1 400")
        assert number < 40, "32 KiB are the limit, not what the parser would take"
        writer.close()


@pytest.mark.parametrize("size", [20, 400_000, 2_000_000])
async def test_the_bytes_of_a_body_are_no_head(size):
    """A body that comes with its head, and one that is not wanted and still comes, end no connection early."""

    async def take(call):
        body = await call.request.content.read() if size < 1_000_000 else b""
        return web.Response(text=str(len(body)), status=200 if body else 413)

    app = HttpApp([Route("POST", "/take", take)], Metrics())
    async with serving(app, Listen(), None, Limits(header_timeout_ms=300)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = b"POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size
        writer.write(head + b"a" * min(size, 100_000))
        for _ in range(100_000, size, 100_000):
            await asyncio.sleep(0.03)
            writer.write(b"a" * 100_000)
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        assert answer.startswith(b"HTTP/1.1 413" if size > 1_000_000 else b"HTTP/1.1 200")
        rest = await asyncio.wait_for(reader.read(), PATIENCE) if size > 1_000_000 else b""
        assert b"HTTP/1.1" not in rest, "no second answer"
        writer.close()


class Recorder(asyncio.Transport):
    """A connection whose bytes arrive when the test says so."""

    def __init__(self):
        super().__init__()
        self.written = b""

    def write(self, data):
        self.written += bytes(data)

    def writelines(self, pieces):
        self.written += b"".join(pieces)

    def is_closing(self):
        return False

    def close(self):
        pass


async def test_a_body_that_arrives_before_the_head_is_reported_is_no_head():
    async def take(call):
        return web.Response(text=str(len(await call.request.content.read())))

    app = HttpApp([Route("POST", "/take", take)], Metrics())
    connection, transport = Server(app, Limits())(), Recorder()
    connection.connection_made(transport)
    connection.data_received(b"POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r")
    connection.data_received(b"\n" + b"a" * 100_000)
    connection.data_received(b"a" * 100_000)
    async with asyncio.timeout(PATIENCE):
        while b"200000" not in transport.written:
            await asyncio.sleep(0.01)
    assert transport.written.startswith(b"HTTP/1.1 200")
    connection.connection_lost(None)
