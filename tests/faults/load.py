"""Callers that submit harmless messages, malware and spam without pause, and remember every answer."""

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from workshop.rig.caller import STATUS, Answer, Caller, NoAnswerError, caller_context
from workshop.rig.process import ServerProcess
from workshop.rig.product import Product
from workshop.rig.samples import malware_message, plain_message, spam_message

PLAIN, MALWARE, SPAM = "plain", "malware", "spam"
LARGE = "large"  # above 1 MiB: abby and guard keep it in a file
_LARGE_LINES = 20_000
FORGED = "forged"  # the domain in From asks to reject what it does not vouch for
MESSAGES: dict[str, Callable[[], bytes]] = {
    PLAIN: plain_message,
    MALWARE: malware_message,
    SPAM: spam_message,
    LARGE: lambda: plain_message() + b"A line of a long report, with words enough to fill it.\r\n" * _LARGE_LINES,
    FORGED: partial(plain_message, "boss@company.example"),
}
CLIENTS = 12
PATIENCE = 60.0  # with what is no promise but has to come, on a machine that is busy with other things


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one submission brought; `answer` is None where the connection ended without one."""

    kind: str
    began: float
    ended: float
    answer: Answer | None

    @property
    def status(self) -> int:
        return self.answer.status if self.answer else 0

    @property
    def decision(self) -> str:
        return str(self.answer.record["decision"]) if self.answer and self.status == 200 else ""

    @property
    def verdict(self) -> str:
        return str(self.answer.record["verdict"]) if self.answer and self.status == 200 else ""

    @property
    def ggrid(self) -> str:
        return str(self.answer.record["ggrid"]) if self.answer and self.status == 200 else ""

    @property
    def delivered(self) -> bool:
        return self.decision == "deliver"

    def __str__(self) -> str:
        return f"{self.kind} after {self.ended - self.began:.2f} s: {self.answer or 'no answer'}"


@dataclass(slots=True)
class Load:
    """A running load: what it brought so far, and how to wait for what it should bring next."""

    outcomes: list[Outcome] = field(default_factory=list)
    sent: int = 0

    def since(self, moment: float) -> list[Outcome]:
        """Return what was both asked and answered after a moment."""
        return [outcome for outcome in self.outcomes if outcome.began >= moment]

    async def wait_for(self, wanted: Callable[[Outcome], bool], since: float, seconds: float) -> float:
        """Wait for the first submission since a moment that is as wanted; return how long it took to come."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = [outcome.ended for outcome in self.outcomes if outcome.began >= since and wanted(outcome)]
            if found:
                return min(found) - since
            await asyncio.sleep(0.02)
        raise AssertionError(f"not seen within {seconds:.0f} s; came: {summary(self.since(since))}")

    async def wait_for_every_kind(self, since: float) -> None:
        """Wait until a message of each kind was asked and answered since a moment, and a little longer."""
        for kind in (PLAIN, MALWARE, SPAM):
            await self.wait_for(lambda outcome, kind=kind: outcome.kind == kind, since, PATIENCE)  # type: ignore[misc]
        await asyncio.sleep(0.5)


def caller_of(product: Product, *, patience: float = 30.0) -> Caller:
    return Caller(product.abby.port, caller_context(product.ca), product.token, patience=patience)


@asynccontextmanager
async def submitting(
    product: Product, *, clients: int = CLIENTS, kinds: Sequence[str] = (PLAIN, MALWARE, SPAM), retry: bool = False
) -> AsyncIterator[Load]:
    """Submit all kinds in turn from many callers until the context is left; every call is answered before that."""
    load = Load()
    turns = itertools.cycle(kinds)
    stopped = asyncio.Event()

    async def submit_on() -> None:
        async with caller_of(product) as caller:
            while not stopped.is_set():
                kind = next(turns)
                outcome = await submit_once(caller, load, kind)
                while retry and outcome.answer is None:
                    await asyncio.sleep(0.05)
                    outcome = await submit_once(caller, load, kind)
                if outcome.status != 200:
                    await asyncio.sleep(0.02)

    tasks = [asyncio.create_task(submit_on()) for _ in range(clients)]
    try:
        yield load
    finally:
        stopped.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 60.0)


async def submit_once(caller: Caller, load: Load, kind: str) -> Outcome:
    load.sent += 1
    began = time.monotonic()
    try:
        answer = await caller.submit(MESSAGES[kind]())
    except NoAnswerError:
        answer = None
    outcome = Outcome(kind, began, time.monotonic(), answer)
    load.outcomes.append(outcome)
    return outcome


async def colour(product: Product) -> str:
    async with caller_of(product) as caller:
        answer = await caller.call("POST", STATUS)
    assert answer.status == 200, answer
    return str(answer.record["messageQueueStatus"])


async def wait_for_colour(product: Product, wanted: str, seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while (seen := await colour(product)) != wanted:
        assert time.monotonic() < end, f"the colour stays {seen}, {wanted} was awaited"
        await asyncio.sleep(0.1)


async def explain(product: Product, ggrids: Sequence[str], seconds: float = PATIENCE) -> dict[str, dict[str, object]]:
    """Return what history tells of each guard request; it is written a moment after the answer."""
    found: dict[str, dict[str, object]] = {}
    waiting = iter(ggrids)
    end = time.monotonic() + seconds

    async def ask_on() -> None:
        async with caller_of(product) as caller:
            for ggrid in waiting:
                answer = await caller.call("GET", f"/v1/messages/{ggrid}")
                while answer.status != 200 and time.monotonic() < end:
                    await asyncio.sleep(0.1)
                    answer = await caller.call("GET", f"/v1/messages/{ggrid}")
                assert answer.status == 200, f"history has nothing of {ggrid}: {answer}"
                found[ggrid] = answer.record

    await asyncio.gather(*(ask_on() for _ in range(8)))
    return found


async def kill(server: ServerProcess) -> None:
    await asyncio.to_thread(server.kill)


async def start(server: ServerProcess) -> None:
    await asyncio.to_thread(server.start)


def summary(outcomes: Sequence[Outcome]) -> str:
    """Count the outcomes by kind and answer, for a person who reads a failure."""
    seen = Counter(
        (outcome.kind, outcome.status, outcome.verdict or (outcome.answer.error if outcome.answer else "none"))
        for outcome in outcomes
    )
    return json.dumps([f"{count} x {kind} {status} {what}" for (kind, status, what), count in sorted(seen.items())])
