"""The size of a request: 52,428,800 bytes pass, one more does not, whichever way it is sent and whoever sends it."""

import asyncio
import io
import socket
import subprocess
from pathlib import Path

import aiohttp
import pytest

from tests.acceptance.client import FORM, SUBMIT, email, form, parameters
from tests.waiting import wait_until
from workshop.rig.samples import plain_message

pytestmark = pytest.mark.slow

LIMIT = 52_428_800
PIECE = 262_144


def body(size: int) -> bytes:
    """Return a whole request body of exactly this size, with one large attachment."""
    head = plain_message().replace(b"text/plain; charset=utf-8", b"multipart/mixed; boundary=big")
    head += (
        b'\r\n--big\r\nContent-Type: application/octet-stream\r\nContent-Disposition: attachment; filename="a"\r\n\r\n'
    )
    tail = b"\r\n--big--\r\n"
    room = size - len(form(parameters(), email(head + tail)))
    line = b"0123456789" * 7 + b"\r\n"
    filling = (line * (room // len(line) + 1))[:room]
    whole = form(parameters(), email(head + filling + tail))
    assert len(whole) == size
    return whole


@pytest.fixture(scope="module")
def too_large() -> bytes:
    return body(LIMIT + 1)


@pytest.fixture(scope="module")
def file_too_large(too_large, tmp_path_factory) -> Path:
    path = Path(tmp_path_factory.mktemp("size") / "body")
    path.write_bytes(too_large)
    return path


def spool_files(service) -> int:
    """Count the files of the spool that a process holds open."""
    files = (path.readlink() for path in Path(f"/proc/{service.pid}/fd").iterdir() if path.is_symlink())
    return sum(str(file).startswith(str(service.folder / "spool")) for file in files)


def pieces(data: bytes):
    """Return an iterator, for which every client chooses chunked encoding."""
    return (data[start : start + PIECE] for start in range(0, len(data), PIECE))


@pytest.mark.spec("8 payload")
@pytest.mark.contract("3 size passes")
@pytest.mark.contract("3 spool")
@pytest.mark.parametrize("way", ["Content-Length", "chunked"])
def test_the_largest_body_passes_and_leaves_nothing_in_the_spool(client, deployment, way):
    data = body(LIMIT)

    answer = client.call(
        "POST", SUBMIT, headers={"Content-Type": FORM}, data=data if way == "Content-Length" else pieces(data)
    )

    assert answer.status == 200, answer.body
    assert answer.result["decision"] != "undecided"
    for service in deployment.product.services:
        assert not list((service.folder / "spool").iterdir())


@pytest.mark.contract("3 spool")
@pytest.mark.parametrize(("size", "spooled"), [(900_000, 0), (3_000_000, 1)])
def test_a_large_body_is_spooled_to_an_unlinked_file_until_the_caller_leaves(client, deployment, size, spooled):
    abby = deployment.product.abby
    with client.connection() as connection:
        connection.putrequest("POST", SUBMIT)
        for name, value in {**client.authorization, "Content-Type": FORM, "Content-Length": str(LIMIT)}.items():
            connection.putheader(name, value)
        connection.endheaders(body(LIMIT)[:size])
        assert not spooled or wait_until(lambda: spool_files(abby) == spooled)
        assert spool_files(abby) == spooled
        assert not list((abby.folder / "spool").iterdir()), "the file has no name"

    assert wait_until(lambda: spool_files(abby) == 0)


@pytest.mark.contract("3 size refused")
@pytest.mark.contract("5 payload_too_large")
def test_a_declared_size_beyond_the_limit_is_refused_before_the_body_is_sent(client):
    head = [f"POST {SUBMIT} HTTP/1.1", "Host: abby", f"Content-Length: {LIMIT + 1}", f"Content-Type: {FORM}"]

    answer = client.say([*head, f"Authorization: Bearer {client.token}"])

    assert (answer.status, answer.error) == (413, "payload_too_large")


@pytest.mark.spec("4 submitEmail 413")
@pytest.mark.spec("8 payload")
@pytest.mark.contract("3 size refused")
@pytest.mark.contract("5 payload_too_large")
class TestOneByteMore:
    """Every client sees the 413, though it was still sending when it came."""

    @pytest.mark.parametrize("way", ["Content-Length", "chunked"])
    def test_requests_sees_413(self, client, too_large, way):
        data = too_large if way == "Content-Length" else pieces(too_large)

        answer = client.call("POST", SUBMIT, headers={"Content-Type": FORM}, data=data)

        assert (answer.status, answer.error) == (413, "payload_too_large")

    @pytest.mark.parametrize("way", ["Content-Length", "chunked"])
    async def test_aiohttp_sees_413(self, client, too_large, way):
        async def stream():
            for piece in pieces(too_large):
                yield piece
                await asyncio.sleep(0)

        sockets = []

        def remembered(address: aiohttp.AddrInfoType) -> socket.socket:
            sockets.append(socket.socket(*address[:3]))
            return sockets[-1]

        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(socket_factory=remembered)) as session,
            session.post(
                client.url + SUBMIT,
                data=io.BytesIO(too_large) if way == "Content-Length" else stream(),
                headers={**client.authorization, "Content-Type": FORM},
                ssl=client.context,
            ) as answer,
        ):
            assert answer.status == 413
            assert (await answer.json())["error"] == "payload_too_large"
        # What it was still sending goes out, or is given up, before the loop may end.
        async with asyncio.timeout(60):
            while any(opened.fileno() != -1 for opened in sockets):
                await asyncio.sleep(0.01)
        assert sockets

    @pytest.mark.parametrize("expect", [[], ["-H", "Expect:"]], ids=["asking first", "sending at once"])
    @pytest.mark.parametrize("way", [[], ["-H", "Transfer-Encoding: chunked"]], ids=["Content-Length", "chunked"])
    def test_curl_sees_413(self, client, file_too_large, way, expect):
        done = subprocess.run(
            ["curl", "-sS", "--max-time", "60", "--cacert", str(client.ca), "-X", "POST", *way, *expect,
             "-H", f"Authorization: Bearer {client.token}", "-H", f"Content-Type: {FORM}",
             "--data-binary", f"@{file_too_large}", "-w", "\n%{http_code}", client.url + SUBMIT],
            check=False, capture_output=True, text=True,
        )  # fmt: skip

        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("\n413")
        assert '"payload_too_large"' in done.stdout
