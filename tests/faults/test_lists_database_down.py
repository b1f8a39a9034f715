"""PostgreSQL killed: guards go on with the lists they have, also those that start meanwhile, and say so."""

import asyncio
import time

import pytest

from mailwarden.database.pool import Database
from mailwarden.lists.requests import ListEntryInput
from mailwarden.lists.service import ListService
from mailwarden.lists.store import ListScope, ListStore
from mailwarden.model.scope import Actor
from tests.faults.conftest import STEADY, Note, Start
from tests.faults.guard_status import ask_guard, figure
from tests.faults.invariants import RECOVERY_SECONDS
from tests.faults.load import caller_of, kill, start, wait_for_colour
from workshop.rig.caller import Caller
from workshop.rig.engines import Engines
from workshop.rig.product import Product
from workshop.rig.samples import plain_message

pytestmark = pytest.mark.slow


async def block(database_url: str, *subjects: str) -> None:
    database = Database(database_url)
    entries = [ListEntryInput(subject) for subject in subjects]
    try:
        await ListService(ListStore(database, database)).add_entries(
            ListScope(), "subject-block", entries, Actor("test")
        )
    finally:
        await database.close()


async def wait_for_verdict(caller: Caller, verdict: str, message: bytes, seconds: float) -> float:
    """Return how long it took until a scan had this verdict."""
    began = time.monotonic()
    while (found := (await caller.submit(message)).record["verdict"]) != verdict:
        assert time.monotonic() - began < seconds, f"the verdict is {found}"
        await asyncio.sleep(0.02)
    return time.monotonic() - began


async def lists_loaded(product: Product) -> list[object]:
    return [(await ask_guard(guard, "/v1/guard/status")).record["listsLoaded"] for guard in product.guards]


@pytest.mark.contract("6 database down")
async def test_lists_act_while_the_database_is_down_and_after_a_guard_restart(
    start_own_product: Start, note: Note, restored_engines: Engines, database_url: str
) -> None:
    product = start_own_product(STEADY)
    guard, postgresql = product.guards[0], restored_engines.postgresql
    message = plain_message(subject="The first offer")
    async with caller_of(product) as caller:
        assert (await caller.submit(message)).record["verdict"] == "clean"
        await block(database_url, "first offer")
        seconds = await wait_for_verdict(caller, "blocked", message, RECOVERY_SECONDS)
        await kill(postgresql)
        await wait_for_colour(product, "YELLOW")
        assert (await caller.submit(message)).record["verdict"] == "blocked"
        await asyncio.to_thread(guard.stop)
        await asyncio.to_thread(guard.start)
        await wait_for_verdict(caller, "blocked", message, RECOVERY_SECONDS)
        assert await lists_loaded(product) == [True]
        assert await figure(guard, "mailwarden_lists_lag_seconds") > 0.5
        await start(postgresql)
        await block(database_url, "second offer")
        back = await wait_for_verdict(caller, "blocked", plain_message(subject="Second offer"), RECOVERY_SECONDS)
    note(f"a change acted {seconds:.2f} s after its commit, and {back:.2f} s after one behind an outage")


@pytest.mark.contract("6 database down")
async def test_a_guard_without_lists_returns_no_clean_verdict(
    start_own_product: Start, restored_engines: Engines, database_url: str
) -> None:
    product = start_own_product(STEADY)
    guard = product.guards[0]
    await asyncio.to_thread(guard.stop)
    for file in (guard.folder / "lists").iterdir():
        file.unlink()
    await kill(restored_engines.postgresql)
    await asyncio.to_thread(guard.start)
    async with caller_of(product) as caller:
        await wait_for_verdict(caller, "unknown", plain_message(), RECOVERY_SECONDS)
        assert await lists_loaded(product) == [False]
        await start(restored_engines.postgresql)
        await wait_for_verdict(caller, "clean", plain_message(), RECOVERY_SECONDS)
