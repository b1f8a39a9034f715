"""What operators rely on: dual-stack listeners, HEAD, engines down at the start, limits of shipped Postfix files."""

import asyncio
import re
import socket
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.cli.main import main
from mailwarden.engines.engine import EngineInfo
from mailwarden.guard import engine_watch as guard_engines
from mailwarden.guard.engine_watch import EngineWatch
from mailwarden.model.evidence import FailureKind
from mailwarden.serving.http_app import Call, HttpApp, Route
from mailwarden.serving.server import Limits, open_port, serving
from mailwarden.settings.shared import Listen
from mailwarden.telemetry.metrics import Metrics

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.mark.parametrize(
    ("host", "reached", "refused"),
    [
        ("::", ["127.0.0.1", "::1"], []),
        ("0.0.0.0", ["127.0.0.1"], ["::1"]),
        ("::1", ["::1"], ["127.0.0.1"]),
        ("127.0.0.1", ["127.0.0.1"], ["::1"]),
    ],
)
async def test_two_colons_listen_for_ipv4_and_ipv6(host: str, reached: list[str], refused: list[str]):
    if not socket.has_dualstack_ipv6():
        pytest.skip("this host has no IPv6")
    server = await open_port(asyncio.Protocol, Listen(host=host, port=0))
    async with server:
        port = server.sockets[0].getsockname()[1]
        for address in reached:
            _, writer = await asyncio.open_connection(address, port)
            writer.close()
        for address in refused:
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection(address, port)


async def test_head_is_answered_as_get_without_a_body():
    async def show(_: Call) -> web.StreamResponse:
        return web.Response(text="ok\n")

    async def stream(call: Call) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(call.request)
        await response.write(b"many bytes")
        await response.write_eof(b"and more")
        return response

    routes = [Route("GET", "/healthz", show), Route("GET", "/stream", stream), Route("POST", "/submit", show)]
    app = HttpApp(routes, Metrics())
    async with serving(app, Listen(), None, Limits()) as port:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            async with session.get("/healthz") as got, session.head("/healthz") as asked:
                assert (asked.status, await asked.read()) == (200, b"")
                assert asked.headers["Content-Length"] == got.headers["Content-Length"] == "3"
            async with session.head("/submit") as asked:
                assert (asked.status, asked.headers["Allow"]) == (405, "POST")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for path in (b"/stream", b"/healthz"):  # on one connection: no byte of a body may stand between the answers
            writer.write(b"HEAD %b HTTP/1.1\r\nHost: a\r\n\r\n" % path)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head
        writer.close()


class Engine:
    name = "clamav"
    required = True

    def __init__(self) -> None:
        self.down = True

    async def check(self) -> EngineInfo:
        if self.down:
            raise EngineFailed(FailureKind.UNREACHABLE, "clamav cannot be reached.")
        return EngineInfo("ClamAV")


async def test_an_engine_that_is_down_at_the_start_is_logged_once(monkeypatch: pytest.MonkeyPatch):
    logged: list[tuple[str, bool]] = []

    class Log:
        def info(self, event: str, **words: object) -> None:
            logged.append((event, bool(words["up"])))

        warning = info

    monkeypatch.setattr(guard_engines, "log", Log())
    engine = Engine()
    watch = EngineWatch([engine], Metrics())  # type: ignore[list-item]
    await watch.check()
    await watch.check()
    assert logged == [("engine_changed", False)]
    engine.down = False
    await watch.check()
    engine.down = True
    await watch.check()
    assert [up for _, up in logged] == [False, True, False]


@pytest.mark.parametrize("way", ["after-queue", "before-queue"])
def test_shipped_postfix_delivers_messages_it_accepts(way: str):
    settings = dict(re.findall(r"(?m)^(\w+) = (\S+)$", (DEPLOY / "postfix" / way / "main.cf").read_text()))
    for limit in ("mailbox_size_limit", "virtual_mailbox_limit"):
        assert settings[limit] == "0" or int(settings[limit]) >= int(settings["message_size_limit"])


def test_other_service_providers_are_ignored_with_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["init", str(tmp_path / "made"), "--no-database"]) == 0
    file = tmp_path / "made" / "abby" / "abby" / "abby.yml"
    lines = file.read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("serviceProviders:"))
    lines.insert(at + 1, "  archive: {hosts: [https://archive.example]}")
    file.write_text("\n".join(lines) + "\n")
    capsys.readouterr()
    assert main(["config", "check", "--config", str(tmp_path / "made")]) == 0
    printed = capsys.readouterr().out
    assert f"warning: {file}:{at + 2}: serviceProviders.archive: is ignored" in printed
