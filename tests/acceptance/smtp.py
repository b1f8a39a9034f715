"""Mail by SMTP: a sender that Postfix takes for another host, and a sink that keeps what comes out behind it."""

import smtplib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP

from tests.acceptance.client import ENVELOPE, PATIENCE
from tests.waiting import wait_until
from workshop.rig.ports import free_port

HOST = "127.0.0.1"
SENDER, RECIPIENT = "alice@pass.example", "bob@company.example"


@dataclass(frozen=True)
class Delivered:
    sender: str
    recipients: tuple[str, ...]
    content: bytes

    def below(self, message: bytes) -> list[str]:
        """Return the names of the header fields above a message that arrived byte for byte."""
        assert self.content.endswith(message), self.content[-len(message) - 200 :]
        head = self.content[: len(self.content) - len(message)].decode("ascii")
        return [line.partition(":")[0] for line in head.splitlines() if line and line[0] not in " \t"]


class _LenientSmtp(SMTP):
    line_length_limit = 10_000_000


class _SinkController(Controller):
    def factory(self) -> SMTP:
        return _LenientSmtp(self.handler, enable_SMTPUTF8=True, data_size_limit=None, hostname="sink.example")


class Sink:
    """The server that mailboxes lie behind; it takes everything."""

    def __init__(self, host: str = HOST) -> None:
        self.port = free_port()
        self._delivered: list[Delivered] = []
        self._lock = threading.Lock()
        self._controller = _SinkController(self, hostname=host, port=self.port, ready_timeout=10.0)

    async def handle_DATA(self, _: object, __: object, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        with self._lock:
            self._delivered.append(
                Delivered(envelope.mail_from, tuple(sorted(envelope.rcpt_tos)), envelope.original_content)
            )
        return "250 Taken"

    def take(self, count: int = 1, patience: float = PATIENCE) -> list[Delivered]:
        """Wait until so many messages are here, and take them out."""
        assert wait_until(lambda: len(self._delivered) >= count, patience), len(self._delivered)
        with self._lock:
            taken, self._delivered = self._delivered, []
        assert len(taken) == count
        return taken

    def clear(self) -> None:
        with self._lock:
            self._delivered = []

    def since(self, number: int) -> list[Delivered]:
        """Return what has come behind so many messages, and leave it."""
        with self._lock:
            return self._delivered[number:]

    @property
    def empty(self) -> bool:
        return not self._delivered

    def __enter__(self) -> Self:
        self._controller.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._controller.stop()


def send(
    port: int,
    message: bytes,
    *recipients: str,
    sender: str = SENDER,
    address: str = str(ENVELOPE["remoteAddress"]),
    options: Sequence[str] = (),
    forward: bool = False,
    host: str = HOST,
) -> str:
    """Send a message as a host of that address would, and return the answer to its data, or the first refusal.

    To Postfix the address is said by XCLIENT; with `forward` it is guard that is spoken to, as Postfix does.
    """
    with smtplib.SMTP(host, port, local_hostname=str(ENVELOPE["senderHelo"]), timeout=60) as session:
        session.ehlo()
        verb = "XFORWARD" if forward else "XCLIENT"
        code, said = session.docmd(verb, f"NAME=mail.pass.example ADDR={address} HELO={ENVELOPE['senderHelo']}")
        assert code in (220, 250), said
        if not forward:
            session.ehlo()
        steps = [lambda: session.mail(sender, options)]
        steps += [lambda each=each: session.rcpt(each) for each in recipients or (RECIPIENT,)]  # type: ignore[misc]
        for step in steps:
            code, said = step()
            if code >= 300:
                return f"{code} {said.decode()}"
        try:
            code, said = session.data(message)
        except smtplib.SMTPDataError as error:
            code, said = error.smtp_code, error.smtp_error if isinstance(error.smtp_error, bytes) else b""
        return f"{code} {said.decode()}"


def ggrid_in(reply: str) -> str:
    """Return the ggrid that a reply names."""
    words = (word.strip("():,;") for word in reply.split())
    return next(word for word in words if len(word) == 36 and word.count("-") == 4)
