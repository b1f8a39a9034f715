"""Senders that try each message again until it is accepted or refused for good, and remember what they were told."""

import re
import smtplib
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.acceptance.smtp import send
from tests.faults.mailbag import Letter, Mailbag

RETRY_SECONDS = 0.2
_QUEUED = re.compile(r"queued as (\w+)")
_REPLY = re.compile(r"\d{3} \d\.\d\.\d+(?: [A-Za-z:]+){0,5}")


@dataclass(frozen=True)
class Failure:
    """A try that came to nothing as far as the sender knows."""

    moment: float
    told: str


def plainly(told: str) -> str:
    """Return the codes of a reply and its first words: the rest may name ids."""
    reply = _REPLY.match(told)
    return reply[0] if reply else told[:60]


class MailLoad:
    """Sends `least` messages, and goes on until somebody says that it is enough, but never beyond `most`."""

    def __init__(
        self,
        letters: Mailbag,
        port: int,
        senders: int,
        least: int,
        most: int,
        patience: float,
        *,
        first: int = 0,
        pause: float = 0.0,
    ) -> None:
        self.enough = threading.Event()
        self.hold = threading.Event()  # there is more on its way than is sensible
        self.digests: dict[int, bytes] = {}  # of what was accepted or refused
        self.queue_ids: dict[int, str] = {}
        self.refused: dict[int, str] = {}
        self.failures: dict[int, list[Failure]] = defaultdict(list)
        self.given_up: set[int] = set()
        self._letters = letters
        self._port = port
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
        """Count the tries that came to nothing by what the sender was told."""
        return Counter(plainly(each.told) for those in self.failures.values() for each in those)

    def _take_number(self) -> int | None:
        with self._lock:
            if self._next >= self._most or (self._next >= self._least and self.enough.is_set()):
                return None
            self._next += 1
            return self._next - 1

    def _run(self) -> None:
        while (number := self._take_number()) is not None:
            letter = self._letters(number)
            end = time.monotonic() + self._patience
            while not self._is_settled(letter):
                time.sleep(RETRY_SECONDS)
                if time.monotonic() > end:
                    self.given_up.add(number)
                    break
            time.sleep(self._pause)
            while self.hold.is_set():
                time.sleep(RETRY_SECONDS)

    def _is_settled(self, letter: Letter) -> bool:
        number = letter.number
        try:
            options = ["BODY=8BITMIME"]
            reply = send(self._port, letter.content, sender=letter.sender, address=letter.address, options=options)
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
        self.digests[number] = letter.digest
        return True
