"""The client before a server that refuses, breaks off and lies."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from mailwarden_client import AsyncClient, CallRefused, Client, NotFound, Retries, StreamCut, Unavailable, Unreachable
from mailwarden_client.errors import ApiError
from mailwarden_client.requests import Repeat
from mailwarden_client.retries import may_retry

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
QUICK = Retries(attempts=4, seconds=10, first_wait=0.01, longest_wait=0.02)
LINE = (
    b'{"entry":"%s","comment":"","created":"2026-01-01T00:00:00.000Z","createdBy":"key:a",'
    b'"updated":"2026-01-01T00:00:00.000Z","updatedBy":"key:a","expires":null,"hits":0,"lastHit":null}\n'
)


@dataclass
class Script:
    """Answers each call by the next line of a script, and remembers the bodies."""

    answers: list[Answer] = field(default_factory=list)
    bodies: list[dict[str, object]] = field(default_factory=list)
    url: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        self.bodies.append(msgspec.json.decode(raw or b"{}") if request.content_type == "application/json" else {})
        return await self.answers.pop(0)(request)


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    script = Script()
    app = web.Application(client_max_size=2**23)
    app.router.add_post("/api/public/lists/v1/{operation}", script.answer)
    app.router.add_get("/v1/messages", script.answer)
    app.router.add_post("/v1/quarantine/{uid}/release", script.answer)
    app.router.add_delete("/v1/quarantine/{uid}", script.answer)
    app.router.add_delete("/v1/reports/{uid}", script.answer)
    app.router.add_delete("/v1/training", script.answer)
    app.router.add_post("/v1/messageQueue/submitEmail", script.answer)
    app.router.add_get("/v1/events", script.answer)
    async with TestServer(app, host="127.0.0.1") as server:
        script.url = str(server.make_url("/"))
        yield script


@pytest.fixture
async def client(script: Script) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(script.url, "mwk_test", retries=QUICK, timeout=2.0) as client:
        yield client


def answering(status: int, body: object, **headers: str) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status, headers=headers)

    return answer


async def hang_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def streaming(count: str | None, *pieces: bytes, break_off: bool = False) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={} if count is None else {"X-Entry-Count": count})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if break_off:
            await asyncio.sleep(0.05)
            assert request.transport is not None
            request.transport.abort()
        return response

    return answer


MODIFIED = answering(200, {"modifiedEntries": 1})


async def test_a_call_is_repeated_until_it_is_answered(script, client):
    busy = answering(503, {"error": "storage_unavailable", "message": "Try again."})
    script.answers = [busy, hang_up, answering(429, {"error": "rate_limited"}, **{"Retry-After": "0"}), MODIFIED]

    assert await client.add_entries("sender-block", ["a@spam.example"]) == 1

    assert len(script.bodies) == 4
    assert all(body == script.bodies[0] for body in script.bodies)


async def test_retries_end_with_the_last_failure(script, client):
    script.answers = [answering(503, {"error": "overloaded", "message": "Later."}, **{"X-Request-Id": "r-9"})] * 4
    with pytest.raises(Unavailable) as raised:
        await client.lists()
    assert (raised.value.code, raised.value.request_id) == ("overloaded", "r-9")


async def test_a_rejection_is_not_retried_and_reports_the_accepted_batches(script, client):
    refusal = answering(422, {"error": "invalid_entry", "message": "No.", "details": [{"index": 2}]})
    script.answers = [MODIFIED, refusal]
    with pytest.raises(CallRefused) as raised:
        await client.delete_entries("sender-block", [f"{index}.example" for index in range(1100)])
    assert raised.value.acknowledged == 500
    assert len(script.bodies) == 2


async def test_a_redirect_does_not_take_the_key_elsewhere(script, client):
    script.answers = [answering(307, {}, Location=f"{script.url}api/public/lists/v1/getLists"), MODIFIED]
    with pytest.raises(CallRefused, match="http_307"):
        await client.lists()


async def test_an_answer_of_another_server_is_reported(script, client):
    script.answers = [answering(200, {"hello": "world"})]
    with pytest.raises(ApiError, match="unreadable_answer"):
        await client.lists()


async def test_a_closed_port_is_reported_as_unreachable():
    async with AsyncClient("http://127.0.0.1:1", "mwk_test", retries=Retries(attempts=2, first_wait=0.01)) as client:
        with pytest.raises(Unreachable):
            await client.lists()


async def test_a_stream_comes_whole_wherever_it_is_split(script, client):
    whole = b"".join(LINE % f"{index}.example".encode() for index in range(100))
    script.answers = [answering(503, {}), streaming("100", *(whole[at : at + 700] for at in range(0, len(whole), 700)))]

    async with client.stream_entries("sender-block") as stream:
        assert stream.count == 100
        assert [each.entry async for each in stream] == [f"{index}.example" for index in range(100)]


@pytest.mark.parametrize(
    ("count", "lines", "break_off"),
    [
        ("3", LINE % b"a.example" + LINE % b"b.example", False),
        ("1", LINE % b"a.example" + LINE % b"b.example", False),
        ("2", LINE % b"a.example" + (LINE % b"b.example")[:-9], False),
        ("2", LINE % b"a.example" + b"{]\n", False),
        ("2", LINE % b"a.example", True),
    ],
)
async def test_a_truncated_or_malformed_stream_is_reported(script, client, count, lines, break_off):
    script.answers = [streaming(count, lines, break_off=break_off)]
    with pytest.raises(StreamCut):
        _ = [each async for each in client.entries("sender-block")]


FOUND = (
    b'{"ggrid":"01a1dd16-1c64-74ed-bc41-781e3d4cab6a","tenantUid":"00000000-0000-4000-8000-000000000001",'
    b'"created":"2026-01-01T00:00:00.5Z","verdict":"spam","decision":"quarantine","fromAddress":"a@b.example",'
    b'"fromName":"","recipients":[],"subject":"","tags":[],"points":7,"reason":"","campaign":null}\n'
)
END = b'{"end":true,"messages":2,"next":null,"complete":true,"searchedBack":null}\n'


async def test_a_stream_of_messages_needs_its_last_line(script, client):
    script.answers = [streaming(None, FOUND + FOUND[:9], FOUND[9:] + END), streaming(None, FOUND + FOUND)]
    async with client.stream_messages("x") as stream:
        assert [each.points async for each in stream] == [7, 7]
        assert stream.end is not None
    with pytest.raises(StreamCut, match="last line"):
        async with client.stream_messages("x") as stream:
            _ = [each async for each in stream]


NOT_TWICE: Sequence[Callable[[AsyncClient], Awaitable[object]]] = (
    lambda client: client.release("1"),
    lambda client: client.delete_held("1"),
    lambda client: client.withdraw_report("1"),
    lambda client: client.reset_training("1"),
)
SCAN: Callable[..., Awaitable[object]] = lambda client, key=None: client.scan(  # noqa: E731
    b"", sender="a@b.example", recipients=["b@c.example"], idempotency_key=key
)
READ = answering(200, {"listFileInfos": []})
PROXY = answering(502, {}), answering(504, {}), answering(503, {})


@pytest.mark.parametrize("lost", [hang_up, *PROXY])
@pytest.mark.parametrize("call", NOT_TWICE)
async def test_a_call_that_may_have_run_is_not_sent_twice(script, client, call, lost):
    script.answers = [READ, lost, MODIFIED]
    await client.lists()  # the connection is used a second time
    with pytest.raises((Unreachable, Unavailable)):
        await call(client)
    assert len(script.bodies) == 2


@pytest.mark.parametrize("call", NOT_TWICE)
async def test_a_refused_call_is_sent_again(script, client, call):
    wait = {"Retry-After": "0"}
    script.answers = [answering(429, {}), answering(503, {}, **wait), answering(404, {})]
    with pytest.raises(NotFound):
        await call(client)
    assert len(script.bodies) == 3


async def test_a_scan_is_repeated_after_a_lost_answer_only_with_its_key(script, client):
    script.answers = [answering(502, {}), hang_up]
    with pytest.raises(Unreachable):
        await SCAN(client)
    script.answers = [hang_up, answering(404, {})]
    with pytest.raises(NotFound):
        await SCAN(client, "17")
    assert len(script.bodies) == 4


@pytest.mark.parametrize("call", [*NOT_TWICE, SCAN])
async def test_a_call_that_was_not_sent_is_sent_again(call):
    retries = Retries(attempts=3, seconds=10, first_wait=0.01, longest_wait=0.02)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    async with AsyncClient(f"http://127.0.0.1:{address[1]}", "mwk_test", retries=retries) as client:
        with pytest.raises(Unreachable) as raised:
            await call(client)
    assert not raised.value.sent
    assert may_retry(raised.value, Repeat.IF_REFUSED)


async def test_a_deeply_nested_answer_is_reported(script, client):
    async def nested(_: web.Request) -> web.StreamResponse:
        return web.Response(body=b"[" * 200_000, content_type="application/json")

    script.answers = [nested]
    with pytest.raises(ApiError, match="unreadable_answer"):
        await client.lists()


async def test_pages_of_events_follow_the_cursor(script, client):
    event = {
        "id": "01a1dd16-1c64-74ed-bc41-781e3d4cab6a", "type": "message.held", "version": 1,
        "time": "2026-01-01T00:00:00Z", "tenantUid": None, "subject": "x", "data": {"a": 1},
    }  # fmt: skip
    pages = [
        {"events": [], "next": "4", "more": True},
        {"events": [event], "next": "5", "more": True},
        {"events": [], "next": "7", "more": True},
        {"events": [event], "next": "8", "more": True},
        {"events": [], "next": "9", "more": False},
    ]
    asked: list[str] = []

    def page_after(page: object) -> Answer:
        async def answer(request: web.Request) -> web.StreamResponse:
            asked.append(request.query["after"])
            return web.json_response(page)

        return answer

    script.answers = [answering(503, {}), *map(page_after, pages)]
    found = [page async for page in client.event_pages("3", types=["message.held"])]
    assert [(page.next, [each.data for each in page.events]) for page in found] == [
        ("4", []), ("5", [{"a": 1}]), ("7", []), ("8", [{"a": 1}]), ("9", []),
    ]  # fmt: skip
    assert asked == ["3", "4", "5", "7", "8"]


async def test_a_stream_without_its_count_is_refused(script, client):
    script.answers = [streaming(None, LINE % b"a.example")]
    with pytest.raises(ApiError, match="X-Entry-Count"):
        _ = [each async for each in client.entries("sender-block")]


async def test_the_waiting_client_does_the_same_and_may_feed_itself(script):
    whole = b"".join(LINE % f"{index}.example".encode() for index in range(700))
    script.answers = [streaming("700", whole), MODIFIED, hang_up, MODIFIED]

    def sweep() -> int:
        with Client(script.url, "mwk_test", retries=QUICK) as client:
            return client.delete_entries("sender-block", (each.entry for each in client.entries("sender-block")))

    assert await asyncio.to_thread(sweep) == 2
    assert [len(body["entries"]) for body in script.bodies[1:]] == [500, 200, 200]


async def test_the_waiting_client_leaves_a_stream_early(script):
    script.answers = [streaming("700", LINE % b"a.example" * 700), streaming("1", LINE % b"z.example", break_off=True)]

    def peek() -> str:
        with Client(script.url, "mwk_test", retries=QUICK) as client:
            with client.stream_entries("sender-block") as stream:
                first = next(iter(stream)).entry
            with pytest.raises(StreamCut):
                list(client.entries("sender-block"))
            return first

    assert await asyncio.to_thread(peek) == "a.example"


@pytest.mark.parametrize("address", ["http://lists.example", "ftp://lists.example", "lists.example", "https://"])
def test_a_key_is_not_sent_in_the_clear(address):
    with pytest.raises(ValueError, match="https"):
        Client(address, "mwk_test")
