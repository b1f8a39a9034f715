"""Fetching a feed: pages of TAXII, events of a MISP feed, validators, limits, and addresses that are refused."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from mailwarden.cli.certificates import make_certificates
from mailwarden.errors import FeedRejected, FeedUnreachable
from mailwarden.event_delivery import http_client as guarded
from mailwarden.event_delivery.addresses import AddressRules
from mailwarden.feeds.fetching import TAXII, Fetched, HttpAnswer, fetch
from mailwarden.feeds.http_client import FeedHttp, open_http, trust_of
from mailwarden.feeds.model import Feed, FeedFormat, FeedSettings

SOURCE = "https://feeds.example/x/manifest.json"
SECRET = {"Authorization": "Bearer s3cret"}
EVENT = "0b48eb52-5d4e-4d0c-8f8a-4d1d40b0d0c1"


class Site:
    """Answers by URL, and records the requests."""

    def __init__(self, **answers: HttpAnswer | bytes) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Mapping[str, str]]] = []

    async def get(self, url: str, headers: Mapping[str, str], max_bytes: int) -> HttpAnswer:
        self.asked.append((url, headers))
        answer = next(each for part, each in self.answers.items() if part in url)
        return answer if isinstance(answer, HttpAnswer) else HttpAnswer(200, {"etag": '"1"'}, answer)

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        raise AssertionError(f"{url} was called")


def feed_of(form: FeedFormat, source: str = SOURCE, etag: str = "", modified: str = "") -> Feed:
    now = datetime.now(UTC)
    return Feed(UUID(int=1), None, "x", FeedSettings(source, form, "url-block"), now, "cli:root", now, etag, modified)


async def test_all_pages_of_a_collection_are_read() -> None:
    first = msgspec.json.encode({"more": True, "next": "a/b", "objects": []})
    last = msgspec.json.encode({"objects": []})
    site = Site(**{"next=a%2Fb": last, "match": first})
    fetched = await fetch(feed_of(FeedFormat.TAXII), site, SECRET)
    assert fetched is not None
    assert fetched.documents == (first, last)
    assert [headers for _, headers in site.asked] == [{"Accept": TAXII, **SECRET}] * 2


@pytest.mark.parametrize("page", [{"more": True}, {"more": True, "next": "same"}, []])
async def test_a_collection_that_does_not_end_is_rejected(page: object) -> None:
    with pytest.raises(FeedRejected, match="Page"):
        await fetch(feed_of(FeedFormat.TAXII), Site(match=msgspec.json.encode(page)), {})


async def test_every_event_of_a_manifest_is_read() -> None:
    site = Site(**{"manifest": msgspec.json.encode({EVENT: {}}), EVENT: b'{"Event": {}}'})
    fetched = await fetch(feed_of(FeedFormat.MISP), site, SECRET)
    assert fetched is not None
    assert (len(fetched.documents), fetched.etag) == (2, '"1"')
    assert site.asked[1][0] == f"https://feeds.example/x/{EVENT}.json"
    with pytest.raises(FeedUnreachable, match="404"):
        await fetch(feed_of(FeedFormat.MISP), Site(**{**site.answers, EVENT: HttpAnswer(404, {}, b"")}), {})


async def test_unchanged_content_is_not_sent_again() -> None:
    site = Site(manifest=HttpAnswer(304, {}, b""))
    assert await fetch(feed_of(FeedFormat.TEXT, etag='"1"', modified="then"), site, {}) is None
    assert site.asked[0][1] == {"If-None-Match": '"1"', "If-Modified-Since": "then"}
    with pytest.raises(FeedUnreachable, match="304"):
        await fetch(feed_of(FeedFormat.TEXT), site, {})


@pytest.mark.parametrize(("status", "words"), [(302, "final URL"), (401, "credential"), (503, "503")])
async def test_any_other_status_is_a_failure(status: int, words: str) -> None:
    with pytest.raises(FeedUnreachable, match=words):
        await fetch(feed_of(FeedFormat.TEXT), Site(manifest=HttpAnswer(status, {}, b"evil.example")), {})


async def test_a_file_has_the_same_limits(tmp_path: Path) -> None:
    file = tmp_path / "feed.txt"
    file.write_bytes(b"x" * 1_001)
    settings = FeedSettings(str(file), FeedFormat.TEXT, "url-block", max_bytes=1_000)
    with pytest.raises(FeedRejected, match="more bytes"):
        await fetch(msgspec.structs.replace(feed_of(FeedFormat.TEXT), settings=settings), Site(), {})
    with pytest.raises(FeedUnreachable, match="Cannot read"):
        await fetch(feed_of(FeedFormat.TEXT, str(tmp_path / "none.txt")), Site(), {})


async def test_internal_addresses_are_never_connected_to() -> None:
    connected = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append(1)
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    hosts = ("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0.0.0.0", "169.254.169.254")
    async with open_http(AddressRules(), ssl.create_default_context()) as http:
        for host in hosts:
            with pytest.raises(FeedUnreachable):
                await http.get(f"https://{host}:{port}/", {}, 1_000)
        assert connected == []
    async with open_http(AddressRules.of(["127.0.0.0/8"]), ssl.create_default_context()) as http:
        with pytest.raises(FeedUnreachable):
            await http.get(f"https://127.0.0.1:{port}/", {}, 1_000)
    assert connected == [1], "a configured network is reached, and TLS is checked there too"
    server.close()
    await server.wait_closed()


OK = b"HTTP/1.1 200 OK\r\n"


@asynccontextmanager
async def https_source(folder: Path, answers: list[bytes]) -> AsyncIterator[tuple[FeedHttp, str, list[bytes]]]:
    """Serve these answers over TLS, each on a connection of its own; yield the client, the URL and the requests."""
    make_certificates(folder, ["feeds.internal"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "abby.crt", folder / "abby.key")
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answers[len(requests) - 1])
        writer.close()

    async def look_up(_: str) -> list[str]:
        return ["127.0.0.1"]

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    trust = trust_of(folder, "ca.crt")
    async with guarded.open_http_client(AddressRules.of(["127.0.0.1/32"]), trust, look_up) as client:
        yield FeedHttp(client), f"https://feeds.internal:{port}/list.txt", requests
    server.close()
    await server.wait_closed()


async def test_a_feed_is_fetched_over_tls_and_then_unchanged(tmp_path: Path) -> None:
    # RFC 9110, section 15.4.5: a 304 has no content, and mostly no Content-Length.
    answers = [
        OK + b'ETag: "v1"\r\nContent-Length: 14\r\n\r\nthief.example\n',
        b'HTTP/1.1 304 Not Modified\r\nETag: "v1"\r\n\r\n',
    ]
    async with https_source(tmp_path, answers) as (http, url, requests):
        fetched = await fetch(feed_of(FeedFormat.TEXT, url), http, SECRET)
        assert fetched == Fetched((b"thief.example\n",), '"v1"')
        assert await fetch(feed_of(FeedFormat.TEXT, url, fetched.etag), http, SECRET) is None
    assert b"If-None-Match" not in requests[0]
    assert b'If-None-Match: "v1"\r\n' in requests[1]
    assert all(b"Authorization: Bearer s3cret\r\n" in each for each in requests)


async def test_an_answer_whose_end_could_be_cut_is_refused(tmp_path: Path) -> None:
    answers = [
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\na.b\r\n0\r\n\r\n",
        OK + b"\r\na.example",
        OK + b"Transfer-Encoding: gzip\r\n\r\na.example",
        OK + b"Content-Length: 20\r\n\r\na.example",
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\na.b\r\n",
    ]
    async with https_source(tmp_path, answers) as (http, url, _):
        assert (await http.get(url, {}, 100)).body == b"a.b"
        for words in ("sends no length", "sends no length|cannot be read", "cannot be read", "cannot be read"):
            with pytest.raises(FeedUnreachable, match=words):
                await http.get(url, {}, 100)


async def test_a_refused_network_is_not_connected_to_though_it_is_allowed() -> None:
    server = await asyncio.start_server(lambda _, writer: connected.append(writer), "127.0.0.1", 0)
    connected: list[asyncio.StreamWriter] = []
    rules = AddressRules.of(["127.0.0.0/8"], ["127.0.0.1/32"])
    async with open_http(rules, ssl.create_default_context()) as http:
        for host in ("127.0.0.1", "[::ffff:127.0.0.1]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]"):
            with pytest.raises(FeedUnreachable, match="refuseNetworks"):
                await http.get(f"https://{host}:{server.sockets[0].getsockname()[1]}/", {}, 1_000)
    server.close()
    assert connected == []
