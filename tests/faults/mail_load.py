"""SMTP clients that retry each message until it is accepted or rejected, and record every reply."""

import re
import smtplib
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.acceptance.smtp import HOST, send
from tests.faults.numbered_messages import MessageSource, NumberedMessage

RETRY_SECONDS = 0.2
_QUEUED = re.compile(r"queued as (\w+)")
_REPLY = re.compile(r"\d{3} \d\.\d\.\d+(?: [A-Za-z:]+){0,5}")


@dataclass(frozen=True)
class Failure:
    """A failed attempt, as the client saw it."""

    moment: float
    reported: str


def plainly(reported: str) -> str:
    """Return the codes and first words of a reply, without ids."""
    reply = _REPLY.match(reported)
    return reply[0] if reply else reported[:60]


class MailLoad:
    """Sends at least `least` messages, then more until `enough` is set, at most `most`."""

    def __init__(
        self,
        messages: MessageSource,
        port: int,
        senders: int,
        least: int,
        most: int,
        patience: float,
        *,
        first: int = 0,
        pause: float = 0.0,
        host: str = HOST,
    ) -> None:
        self.enough = threading.Event()
        self.hold = threading.Event()  # too many messages are queued
        self.digests: dict[int, bytes] = {}  # of accepted and rejected messages
        self.queue_ids: dict[int, str] = {}
        self.refused: dict[int, str] = {}
        self.failures: dict[int, list[Failure]] = defaultdict(list)
        self.given_up: set[int] = set()
        self._messages = messages
        self._port = port
        self._host = host
        self._least, self._most = first + least, first + most
        self._patience = patience
        self._pause = pause
        self._next = first
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(senders)]

    @contextmanager
    def running(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self.enough.set()
            self.hold.clear()
        for thread in self._threads:
            thread.join(self._patience * 2)
            assert not thread.is_alive(), "a sender hangs"

    @property
    def done(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    @property
    def accepted(self) -> frozenset[int]:
        return frozenset(self.digests.copy()) - frozenset(self.refused.copy())

    @property
    def put_off(self) -> Counter[str]:
        """Count the failed attempts by their reply."""
        return Counter(plainly(each.reported) for those in self.failures.values() for each in those)

    def _take_number(self) -> int | None:
        with self._lock:
            if self._next >= self._most or (self._next >= self._least and self.enough.is_set()):
                return None
            self._next += 1
            return self._next - 1

    def _run(self) -> None:
        while (number := self._take_number()) is not None:
            message = self._messages(number)
            end = time.monotonic() + self._patience
            while not self._is_settled(message):
                time.sleep(RETRY_SECONDS)
                if time.monotonic() > end:
                    self.given_up.add(number)
                    break
            time.sleep(self._pause)
            while self.hold.is_set():
                time.sleep(RETRY_SECONDS)

    def _is_settled(self, message: NumberedMessage) -> bool:
        number = message.number
        try:
            reply = send(
                self._port,
                message.content,
                sender=message.sender,
                address=message.address,
                options=["BODY=8BITMIME"],
                host=self._host,
            )
        except (OSError, smtplib.SMTPException, AssertionError) as error:
            self.failures[number].append(Failure(time.time(), type(error).__name__))
            return False
        if reply[0] == "4":
            self.failures[number].append(Failure(time.time(), reply))
            return False
        if reply[0] == "2":
            queued = _QUEUED.search(reply)
            self.queue_ids[number] = queued[1] if queued else ""
        else:
            self.refused[number] = reply
        self.digests[number] = message.digest
        return True
