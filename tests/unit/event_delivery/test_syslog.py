"""Syslog messages: their syntax by RFC 5424, their frames by RFC 5425, and the checks of the receiver."""

import asyncio
import json
import re
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mailwarden.cli.certificates import make_certificates
from mailwarden.event_delivery.addresses import AddressRules
from mailwarden.event_delivery.http_client import DeliveryFailed, client_trust
from mailwarden.event_delivery.syslog import MAX_MESSAGE, SyslogMessage, SyslogSender, frame

SYNTAX = re.compile(
    rb"<(\d{1,3})>1 (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) ([!-~]{1,255}) ([!-~]{1,48}) - ([!-~]{1,32}) - (.*)"
)
MOMENT = datetime(2026, 3, 2, 9, 30, 0, 250_000, tzinfo=UTC)


def message(document: dict[str, object], event_type: str = "message.held") -> SyslogMessage:
    return SyslogMessage(MOMENT, event_type, 6, document, {"id": "1", "truncated": True})


def test_a_message_has_the_syntax_and_the_length_of_the_standards() -> None:
    framed = frame(message({"subject": "Über\u0000\n<script>"}), "host.example")
    length, _, encoded = framed.partition(b" ")
    assert int(length) == len(encoded)
    found = SYNTAX.fullmatch(encoded)
    assert found is not None
    assert found.group(1, 2, 3, 4, 5) == (
        b"110",
        b"2026-03-02T09:30:00.250000Z",
        b"host.example",
        b"mailwarden",
        b"message.held",
    )
    assert json.loads(found.group(6)) == {"subject": "Über\u0000\n<script>"}
    assert encoded.isascii()


def test_a_message_that_is_too_long_is_replaced_by_its_brief_form() -> None:
    framed = frame(message({"subject": "x" * MAX_MESSAGE}), "host")
    assert len(framed) < 200
    assert framed.endswith(b'{"id":"1","truncated":true}')


@pytest.fixture
def tls(tmp_path: Path) -> Path:
    make_certificates(tmp_path, ["siem.internal"])
    return tmp_path


def server_tls(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "abby.crt", folder / "abby.key")
    return context


class SyslogServer:
    """Reads frames with octet counting; `limit` closes each connection after so many messages."""

    def __init__(self, limit: int | None = None) -> None:
        self.messages: list[bytes] = []
        self.connections = 0
        self._limit = limit

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self._limit is None or len(self.messages) < self._limit:
                length = await reader.readuntil(b" ")
                self.messages.append(await reader.readexactly(int(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def names(_: str) -> list[str]:
    return ["127.0.0.1"]


def sender(url: str, folder: Path, networks: tuple[str, ...] = ("127.0.0.0/8",)) -> SyslogSender:
    return SyslogSender(url, AddressRules.of(networks), client_trust(folder / "ca.crt"), names)


async def test_messages_arrive_in_order_over_one_connection(tls: Path) -> None:
    receiver = SyslogServer()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=server_tls(tls))
    opened = sender(f"tls://siem.internal:{server.sockets[0].getsockname()[1]}", tls)
    for batch in range(3):
        await opened.send([message({"number": batch * 10 + number}) for number in range(10)])
    await opened.close()
    server.close()
    bodies = [SYNTAX.fullmatch(each) for each in receiver.messages]
    assert [json.loads(each.group(6))["number"] for each in bodies if each] == list(range(30))
    assert receiver.connections == 1


async def test_a_receiver_that_closes_the_connection_is_a_failure(tls: Path) -> None:
    receiver = SyslogServer(limit=1)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=server_tls(tls))
    opened = sender(f"tls://siem.internal:{server.sockets[0].getsockname()[1]}", tls)
    with pytest.raises(DeliveryFailed, match="cannot be reached"):
        await opened.send([message({"number": number}) for number in range(3)])
    server.close()


async def test_the_name_in_the_certificate_is_checked(tls: Path) -> None:
    receiver = SyslogServer()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0, ssl=server_tls(tls))
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(DeliveryFailed, match="certificate is invalid"):
        await sender(f"tls://other.internal:{port}", tls).send([message({})])
    server.close()
    assert receiver.messages == []


async def test_a_private_receiver_needs_the_configuration(tls: Path) -> None:
    receiver = SyslogServer()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(DeliveryFailed, match="allowPrivateNetworks"):
        await sender(f"tls://siem.internal:{port}", tls, networks=()).send([message({})])
    server.close()
    assert receiver.connections == 0
