"""The IMAP client against servers that lie, hang or lack what guard needs."""

import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import pytest

from mailwarden.errors import ConfigurationError
from mailwarden.user_reports.mailbox.imap_client import (
    MAX_ANSWER,
    ImapClient,
    ListedMail,
    MailboxFailed,
    UnreadableMail,
)
from mailwarden.user_reports.settings import ReportImap

CAPABILITIES = b"IMAP4rev1 MOVE AUTH=PLAIN"
Script = Mapping[bytes, bytes]


class Handler(socketserver.StreamRequestHandler):
    timeout = 5.0

    def handle(self) -> None:
        script: Script = self.server.script  # type: ignore[attr-defined]
        self.wfile.write(script.get(b"", b"* OK ready\r\n"))
        while line := self.rfile.readline(10_000):
            words = line.split()
            command = b" ".join(words[1:3]) if words[1] == b"UID" else words[1]
            if command == b"AUTHENTICATE":
                self.wfile.write(b"+ \r\n")
                self.rfile.readline(10_000)
            answers = {
                b"CAPABILITY": b"* CAPABILITY " + CAPABILITIES + b"\r\n%s OK done\r\n",
                b"SELECT": b"* 3 EXISTS\r\n* OK [UIDVALIDITY 7]\r\n%s OK done\r\n",
                **script,
            }
            self.wfile.write(answers.get(command, b"%s OK done\r\n").replace(b"%s", words[0]))


@contextmanager
def serving(script: Script) -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.script = script  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture
def client_of(tmp_path: Path) -> Callable[..., ImapClient]:
    (tmp_path / "password").write_text("secret-word\nnot this line\n")

    def make(port: int, timeout: int = 300) -> ImapClient:
        settings = ReportImap(
            "phishing@company.example", "127.0.0.1", "ann", "password", port=port, tls="off", timeout=timeout
        )
        return ImapClient(settings, tmp_path)

    return make


def failure_of(client: ImapClient, work: Callable[[], object]) -> str:
    with pytest.raises(MailboxFailed) as failed:
        work()
    client.close()
    assert "secret-word" not in str(failed.value)
    return str(failed.value)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ({b"": b""}, "Cannot connect"),
        ({b"": b"* BYE full\r\n"}, "Cannot connect"),
        ({b"AUTHENTICATE": b"%s NO secret-word is wrong\r\n"}, "rejects the login of ann"),
        ({b"CAPABILITY": b"* CAPABILITY IMAP4rev1 AUTH=PLAIN\r\n%s OK done\r\n"}, "does not support MOVE"),
        ({b"CAPABILITY": b"* CAPABILITY IMAP4rev1 \xff\r\n%s OK done\r\n"}, "Cannot connect"),
        ({b"SELECT": b"%s NO [NONEXISTENT] no \x07 folder\r\n"}, "rejects SELECT: [NONEXISTENT] no ? folder"),
        ({b"SELECT": b"%s OK done\r\n"}, "sent no number"),
        ({b"SELECT": b"* OK more\r\n" * 300_000}, "beyond the limit"),
        ({b"SELECT": b"* " + b"x" * 2_000_000 + b"\r\n"}, "did not answer SELECT"),
        ({b"SELECT": b""}, "did not answer SELECT"),
    ],
    ids=["silent", "bye", "login", "no move", "no ascii", "no folder", "no number", "endless", "long line", "hangs"],
)
def test_a_failed_session_says_why(client_of: Callable[[int], ImapClient], script: Script, reason: str) -> None:
    with serving(script) as port:
        client = client_of(port)
        assert reason in failure_of(client, client.open)


def test_mails_are_listed_by_uid_and_size(client_of: Callable[[int], ImapClient]) -> None:
    shown = b"* 1 FETCH (RFC822.SIZE 300 UID 12)\r\n* 2 FETCH (FLAGS ())\r\n* 3 FETCH (UID 14 RFC822.SIZE 5)\r\n"
    with serving({b"FETCH": shown + b"%s OK done\r\n"}) as port:
        client = client_of(port)
        assert client.open().count == 3
        assert client.listed(1, 3) == [ListedMail(12, 300), ListedMail(14, 5)]
        client.close()


@pytest.mark.parametrize(
    "answer",
    [b"%s OK done\r\n", b"%s NO gone\r\n", b"* 1 FETCH (UID 12 BODY[] {0}\r\n)\r\n%s OK done\r\n"],
    ids=["nothing", "refused", "empty"],
)
def test_a_mail_without_content_is_unreadable(client_of: Callable[[int], ImapClient], answer: bytes) -> None:
    with serving({b"UID FETCH": answer}) as port:
        client = client_of(port)
        client.open()
        with pytest.raises(UnreadableMail):
            client.read(ListedMail(12, 300))
        client.close()


def test_a_literal_beyond_the_size_is_not_read(client_of: Callable[[int], ImapClient]) -> None:
    answer = b"* 1 FETCH (UID 12 BODY[] {%d}\r\n" % (MAX_ANSWER + 400)
    with serving({b"UID FETCH": answer}) as port:
        client = client_of(port)
        client.open()
        assert "beyond the limit" in failure_of(client, lambda: client.read(ListedMail(12, 300)))


def test_an_abort_ends_a_call_that_waits(client_of: Callable[..., ImapClient]) -> None:
    with serving({b"UID FETCH": b""}) as port:
        client = client_of(port, timeout=60_000)
        client.open()
        began = time.monotonic()
        threading.Timer(0.05, client.abort).start()
        with pytest.raises(MailboxFailed):
            client.read(ListedMail(12, 300))
        client.close()
        assert time.monotonic() - began < 4  # the server hangs up after five seconds


@contextmanager
def dripping(drip: bytes) -> Iterator[int]:
    """Serve a port that sends `drip` every 50 ms for at most 5 seconds, so that no wait reaches its timeout."""
    ended = threading.Event()

    def serve() -> None:
        with suppress(OSError):
            connection, _ = listening.accept()
            with connection:
                for _ in range(100):
                    connection.sendall(drip)
                    if ended.wait(0.05):
                        return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(5)
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        ended.set()
        thread.join(5)


# The TLS drip begins with the head of a handshake record of 771 bytes, which never arrives whole.
@pytest.mark.parametrize(("tls", "drip"), [("off", b"x"), ("implicit", b"\x16\x03\x03\x03\x03")])
def test_an_abort_ends_an_open_that_waits(tmp_path: Path, tls: Literal["off", "implicit"], drip: bytes) -> None:
    (tmp_path / "password").write_text("secret-word\n")
    with dripping(drip) as port:
        settings = ReportImap("phishing@company.example", "127.0.0.1", "ann", "password", port=port, tls=tls)
        client = ImapClient(settings, tmp_path)
        began = time.monotonic()
        threading.Timer(0.2, client.abort).start()
        failure_of(client, client.open)
        assert 0.15 < time.monotonic() - began < 2


def test_an_aborted_client_does_not_connect(client_of: Callable[[int], ImapClient]) -> None:
    with serving({}) as port:
        client = client_of(port)
        client.abort()
        assert failure_of(client, client.open) == "The connection is closed."


@pytest.mark.parametrize("content", [None, "", "\n", "\xff"], ids=["missing", "empty", "blank", "not text"])
def test_a_password_file_without_a_password_is_refused(
    client_of: Callable[[int], ImapClient], tmp_path: Path, content: str | None
) -> None:
    (tmp_path / "password").unlink()
    if content is not None:
        (tmp_path / "password").write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigurationError, match=r"reports\.mailboxes\.password"):
        client_of(1).open()
