"""The load on the fleet: scans and list changes at the shared address, mail at Postfix; all of it numbered or named."""

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tests.faults.delivery_check import CopySink
from tests.faults.list_calls import ListCaller, make_key, open_session
from tests.faults.list_ledger import Ledger
from tests.faults.load import LARGE, MALWARE, PLAIN, SPAM, Load, Outcome, submit_once
from tests.faults.mail_load import MailLoad
from tests.faults.numbered_messages import own_messages
from tests.fleet.edge import HTTPS
from tests.fleet.topology import SHARED, Fleet
from workshop.rig.caller import Caller, caller_context
from workshop.rig.product import Product

MESSAGES_A_SEED = 10_000  # numbers of messages that belong to one seed
BATCH = 5
DELETE_EVERY = 3
MAIL_PATIENCE = 300.0
STOP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Rate:
    """Callers of each kind, and their pause after an answer in seconds."""

    scanners: int = 3
    writers: int = 2
    senders: int = 2
    pause: float = 0.15
    mail_pause: float = 0.4
    patience: float = 12.0  # seconds for one answer; then the caller tries again


class FleetLoad:
    """Runs from `running` on; afterwards every call has been answered or given up."""

    def __init__(self, fleet: Fleet, key: str, sink: CopySink, seed: int, rate: Rate) -> None:
        assert fleet.postfix is not None
        self.scans = Load()
        self.lists = Ledger(BATCH, f"{chr(ord('a') + seed // 100 % 26)}{seed % 100:02}", _MAY_REFUSE, DELETE_EVERY)
        self.sink = sink
        self.mail = MailLoad(
            own_messages(next(iter(fleet.engines.values())).dns),
            fleet.postfix.port,
            rate.senders,
            1,
            MESSAGES_A_SEED,
            MAIL_PATIENCE,
            first=seed % 100 * MESSAGES_A_SEED,
            pause=rate.mail_pause,
            host=fleet.postfix.host,
        )
        self.errors: list[BaseException] = []
        self._fleet = fleet
        self._key = key
        self._rate = rate
        self._stopped = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._call, daemon=True)
        thread.start()
        try:
            with self.mail.running():
                yield
                self._stopped.set()
        finally:
            self._stopped.set()
            thread.join(STOP_SECONDS)
        assert not thread.is_alive(), "a caller hangs"
        if self.errors:
            raise self.errors[0]

    def scanned(self) -> list[float]:
        """Return the moments of all decided scans."""
        return [each.ended for each in self._decided()]

    def scans_begun(self) -> list[float]:
        """Return when the decided scans were sent."""
        return [each.began for each in self._decided()]

    def _decided(self) -> list[Outcome]:
        return [each for each in self.scans.outcomes.copy() if each.decision not in ("", "undecided")]

    def written(self) -> list[float]:
        """Return the moments of all acknowledged list changes."""
        return list(self.lists.acknowledged.copy().values())

    def _call(self) -> None:
        try:
            asyncio.run(self._call_all())
        except BaseException as error:  # shown by the thread that waits
            self.errors.append(error)

    async def _call_all(self) -> None:
        stopped = asyncio.Event()
        turns = itertools.cycle((*(PLAIN, MALWARE, PLAIN, SPAM) * 4, LARGE))
        async with open_session(product_of(self._fleet), patience=self._rate.patience) as session:
            caller = ListCaller(session, self._fleet.url, self._key)
            tasks = [asyncio.create_task(self._scan_on(turns)) for _ in range(self._rate.scanners)]
            tasks += [
                asyncio.create_task(self.lists.write_on(caller, stopped, self._rate.pause))
                for _ in range(self._rate.writers)
            ]
            while not self._stopped.is_set() and not any(task.done() for task in tasks):
                await asyncio.sleep(0.05)
            self._stopped.set()
            stopped.set()
            await asyncio.gather(*tasks)

    async def _scan_on(self, turns: Iterator[str]) -> None:
        context = caller_context(self._fleet.ca)
        async with Caller(HTTPS, context, self._fleet.token, patience=self._rate.patience, host=SHARED) as caller:
            while not self._stopped.is_set():
                outcome = await submit_once(caller, self.scans, next(turns))
                await asyncio.sleep(self._rate.pause if outcome.status == 200 else 0.2)


# A List API call is also refused by an abby that starts, ends or has no guard.
_MAY_REFUSE = frozenset({"storage_unavailable", "overloaded", "shutting_down"})


def product_of(fleet: Fleet) -> Product:
    """Return the first abby and all guards in the form that other tests use."""
    return Product(fleet.root, fleet.abbys[0], fleet.guards)


def make_writer(fleet: Fleet) -> str:
    """Create the key of the list writers."""
    return asyncio.run(make_key(product_of(fleet), fleet.primary_url, "fleet"))


def longest_gap(moments: Sequence[float], since: float) -> float:
    """Return the longest time without a success from a moment until now."""
    ordered = sorted(each for each in moments if each > since)
    return max(later - earlier for earlier, later in itertools.pairwise([since, *ordered, time.monotonic()]))
