"""HTTP clients that submit each message until it has a result, at one abby or the other, with one Idempotency-Key."""

import asyncio
import hashlib
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.faults.load import MALWARE, MESSAGES, PLAIN, SPAM
from workshop.rig.caller import Answer, Caller, NoAnswerError, caller_context
from workshop.rig.product import Service

KINDS = (PLAIN, MALWARE, PLAIN, SPAM)
RETRY_SECONDS = 0.05
PATIENCE = 120.0  # seconds for one message with all its attempts


@dataclass(frozen=True)
class Attempt:
    """An attempt without a result: the connection was refused or closed, or the answer was not 200."""

    abby: str
    reason: str
    retry_after: str = ""


class HttpLoad:
    """Submits numbered messages of all kinds until the context is left; then every message has been answered."""

    def __init__(self, abbys: Sequence[Service], token: str, clients: int, *, pause: float = 0.0) -> None:
        self.results: dict[int, Answer] = {}
        self.digests: dict[int, str] = {}  # of the messages, as history stores them
        self.failures: dict[int, list[Attempt]] = defaultdict(list)
        self.given_up: set[int] = set()
        self.sent = 0
        self._abbys = abbys
        self._token = token
        self._clients = clients
        self._pause = pause
        self._stopped = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=lambda: asyncio.run(self._submit_all()), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
        thread.join(PATIENCE * 2)
        assert not thread.is_alive(), "a client hangs"

    @property
    def retried(self) -> Counter[str]:
        """Count the attempts without a result by their reason."""
        return Counter(attempt.reason for each in self.failures.values() for attempt in each)

    async def _submit_all(self) -> None:
        await asyncio.gather(*(self._submit_on(first) for first in range(self._clients)))

    async def _submit_on(self, first: int) -> None:
        context = caller_context(self._abbys[0].folder / "tls" / "ca.crt")
        callers = [Caller(abby.port, context, self._token) for abby in self._abbys]
        turn = first
        while not self._stopped.is_set():
            number, self.sent = self.sent, self.sent + 1
            turn = await self._submit(number, callers, turn + 1)
            await asyncio.sleep(self._pause)
        for caller in callers:
            caller.close()

    async def _submit(self, number: int, callers: Sequence[Caller], turn: int) -> int:
        """Submit one message until it has a result; each further attempt goes to the other abby."""
        message, key = _message(number), f"Idempotency-Key: upgrade-{number}\r\n"
        self.digests[number] = hashlib.sha256(message).hexdigest()
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            abby = self._abbys[turn % len(callers)].name
            try:
                answer = await callers[turn % len(callers)].submit(message, key)
            except NoAnswerError as error:
                reason = "refused" if isinstance(error.__cause__, ConnectionRefusedError) else "closed"
                self.failures[number].append(Attempt(abby, f"connection {reason}"))
            else:
                if answer.status == 200:
                    self.results[number] = answer
                    return turn
                reason = f"{answer.status} {answer.error}"
                self.failures[number].append(Attempt(abby, reason, answer.headers.get("retry-after", "")))
            turn += 1
            await asyncio.sleep(RETRY_SECONDS)
        self.given_up.add(number)
        return turn


def kind_of(number: int) -> str:
    return KINDS[number % len(KINDS)]


def _message(number: int) -> bytes:
    return b"X-Number: %06d\r\n" % number + MESSAGES[kind_of(number)]()
