"""A change of a list acts on scans in two guards within two seconds; without the database the last lists act."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, closing
from uuid import UUID

import pytest

from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.tenant import AssignedBy, Assignment, RecipientGroup
from mailwarden.wire.guard import DEADLINE_HEADER, GGRID_HEADER, GROUPS_HEADER, write_groups
from rig.caller import Caller, caller_context, submission
from rig.engines import Engines
from rig.product import Product, Service
from rig.samples import plain_message
from tests.faults.conftest import STEADY, Note, Start
from tests.faults.list_calls import FULL, NO_RATE_LIMIT, ListCaller, make_key, make_tenants, open_session, percentile
from tests.faults.load import caller_of, kill, start, wait_for_colour

pytestmark = pytest.mark.slow

CHANGES = 200 if FULL else 40
WORKERS = 4
PROMISED = 2.0
PATIENCE = 60.0
BLOCKED = "blocked"


@pytest.fixture
async def stack() -> AsyncIterator[ExitStack]:
    """Return what closes the callers of a test at its end, on the loop that they were opened on."""
    with ExitStack() as callers:
        yield callers


class GuardCaller:
    """Scans at one guard for one tenant, as abby would."""

    def __init__(self, guard: Service, tenant: str) -> None:
        tls = guard.folder / "tls"
        self._caller = Caller(guard.port, caller_context(tls / "ca.crt", tls), "")
        self._tenant = tenant

    async def scan(self, sender: str) -> str:
        """Return the verdict on a harmless message from that sender."""
        reported = {
            GGRID_HEADER: str(new_ggrid()),
            DEADLINE_HEADER: "20000",
            GROUPS_HEADER: write_groups([RecipientGroup(Assignment(UUID(self._tenant), AssignedBy.REQUEST))], ())[0],
        }
        headers = "".join(f"{name}: {value}\r\n" for name, value in reported.items())
        answer = await self._caller.ask(submission(plain_message(sender), "", headers))
        assert answer.status == 200, str(answer)
        return str(answer.record["verdict"])

    async def wait_until(self, sender: str, *, blocked: bool) -> float:
        """Scan without pause until the list acts as it should; return when the first scan that shows it began."""
        end = time.monotonic() + PATIENCE
        while True:
            began = time.monotonic()
            if (await self.scan(sender) == BLOCKED) is blocked:
                return began
            assert began < end, f"{sender}: not {'blocked' if blocked else 'free'} after {PATIENCE:.0f} s"

    def close(self) -> None:
        self._caller.close()


def callers_of(product: Product, tenant: str, stack: ExitStack) -> list[GuardCaller]:
    return [stack.enter_context(closing(GuardCaller(guard, tenant))) for guard in product.guards]


async def measure(lists: ListCaller, guards: list[GuardCaller], turns: "itertools.count[int]") -> list[float]:
    """Block a sender and free it again, turn by turn; return how long each change took to act in both guards."""
    delays = []
    while (turn := next(turns)) < CHANGES // 2:
        sender = f"s{turn}@pass.example"
        for blocked in (True, False):
            answer = await (
                lists.add("sender-block", [sender], "x") if blocked else lists.delete("sender-block", [sender])
            )
            committed = time.monotonic()
            assert answer.modified == 1
            shown = await asyncio.gather(*(guard.wait_until(sender, blocked=blocked) for guard in guards))
            delays.append(max(shown) - committed)
    return delays


@pytest.mark.contract("4 two seconds")
async def test_a_change_acts_on_scans_in_two_guards_within_two_seconds(
    start_own_product: Start, note: Note, database_url: str, stack: ExitStack
) -> None:
    product = start_own_product(STEADY, STEADY, abby=NO_RATE_LIMIT)
    [tenant] = (await make_tenants(database_url, {"acme": "acme.example"})).values()
    key = await make_key(product, database_url, "measure", tenant)
    turns = itertools.count()
    async with open_session(product) as session:
        lists = ListCaller(session, product.url, key, tenant)
        callers = [callers_of(product, tenant, stack) for _ in range(WORKERS)]
        measured = await asyncio.gather(*(measure(lists, guards, turns) for guards in callers))
    delays = list(itertools.chain(*measured))
    p50, p99, most = (percentile(delays, part) for part in (0.5, 0.99, 1.0))
    note(f"{len(delays)} changes acted in two guards after p50 {p50:.2f} p99 {p99:.2f} max {most:.2f} s")
    assert len(delays) == CHANGES
    # A machine that others use too may stand still for a second: of a few dozen changes one may hit upon that.
    assert (p99 if FULL else percentile(delays, 0.9)) <= PROMISED, delays


@pytest.mark.contract("4 database away", "6 database down")
async def test_without_the_database_scans_use_the_last_lists_and_status_shows_it(
    start_own_product: Start, note: Note, restored_engines: Engines, database_url: str, stack: ExitStack
) -> None:
    product = start_own_product(STEADY, STEADY, abby=NO_RATE_LIMIT)
    [tenant] = (await make_tenants(database_url, {"acme": "company.example"})).values()
    key = await make_key(product, database_url, "outage", tenant)
    async with open_session(product) as session, caller_of(product) as abby:
        guards = callers_of(product, tenant, stack)
        lists = ListCaller(session, product.url, key, tenant)
        assert (await lists.add("sender-block", ["carol@pass.example"], "before")).modified == 1
        for guard in guards:
            await guard.wait_until("carol@pass.example", blocked=True)
        await kill(restored_engines.postgresql)
        await wait_for_colour(product, "YELLOW")
        verdicts = [(await abby.submit(plain_message("carol@pass.example"))).record["verdict"] for _ in range(6)]
        verdicts += [await guard.scan("carol@pass.example") for guard in guards]
        assert set(verdicts) == {BLOCKED}
        refused = await lists.add("sender-block", ["bob@pass.example"], "during")
        assert (refused.status, refused.error) == (503, "storage_unavailable")
        # A guard that starts now has the lists that it had on disk.
        await kill(product.guards[1])
        await start(product.guards[1])
        assert [await guard.scan("carol@pass.example") for guard in guards] == [BLOCKED, BLOCKED]
        assert await guards[1].scan("bob@pass.example") == "clean"
        await start(restored_engines.postgresql)
        back = time.monotonic()
        while (await lists.add("sender-block", ["bob@pass.example"], "after")).status != 200:
            assert time.monotonic() < back + PATIENCE
            await asyncio.sleep(0.05)
        written = time.monotonic()
        shown = await asyncio.gather(*(guard.wait_until("bob@pass.example", blocked=True) for guard in guards))
    note(
        f"database away: lists acted on, also in a guard that was started meanwhile; a change written "
        f"{written - back:.2f} s after its return acted {max(shown) - written:.2f} s later"
    )
