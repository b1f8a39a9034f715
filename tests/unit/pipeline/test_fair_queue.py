"""Turns are taken by tenant, then by scan source, then by client; nobody who stopped waiting keeps a worker."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.model.scan import Flow
from mailwarden.pipeline.fair_queue import FairQueue, RoundRobin


class Worker:
    usable = True


def flow(tenant: str, source: str = "smtp", client: str = "192.0.2.1") -> Flow:
    return tenant, source, client


def drained(ring: RoundRobin[str]) -> list[str]:
    return [ring.next() for _ in range(len(ring))]


def test_tenants_take_turns_regardless_of_their_load():
    ring: RoundRobin[str] = RoundRobin()
    for number in range(4):
        ring.add(flow("acme"), f"a{number}")
    ring.add(flow("bank"), "b0")
    ring.add(flow("bank"), "b1")
    assert drained(ring) == ["a0", "b0", "a1", "b1", "a2", "a3"]


def test_sources_and_clients_take_turns_within_their_tenant():
    ring: RoundRobin[str] = RoundRobin()
    for number in range(3):
        ring.add(flow("acme", "smtp", "192.0.2.1"), f"flood{number}")
    ring.add(flow("acme", "smtp", "192.0.2.2"), "other client")
    ring.add(flow("acme", "restApi", "192.0.2.1"), "other source")
    ring.add(flow("bank"), "other tenant")
    assert drained(ring) == ["flood0", "other tenant", "other source", "other client", "flood1", "flood2"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.sampled_from("123")), max_size=40))
def test_every_item_comes_out_once_and_no_tenant_waits_for_two_of_another(flows: list[Flow]):
    ring: RoundRobin[Flow] = RoundRobin()
    for item in flows:
        ring.add(item, item)
    out = [ring.next() for _ in range(len(ring))]
    assert sorted(out) == sorted(flows)
    for place in range(len(out) - 1):
        later = {item[0] for item in out[place + 1 :]}
        if out[place][0] == out[place + 1][0]:
            assert later == {out[place][0]}, "one tenant is served twice in a row only where no other waits"


async def test_a_request_that_stopped_waiting_is_passed_over():
    queue: FairQueue[Worker] = FairQueue()
    gone = asyncio.create_task(queue.take(flow("acme")))
    stays = asyncio.create_task(queue.take(flow("acme")))
    await asyncio.sleep(0)
    gone.cancel()
    worker = Worker()
    queue.give(worker)
    assert await stays is worker


async def test_a_worker_given_to_a_request_that_ends_is_not_lost():
    queue: FairQueue[Worker] = FairQueue()
    waits = asyncio.create_task(queue.take(flow("acme")))
    await asyncio.sleep(0)
    worker = Worker()
    queue.give(worker)
    waits.cancel()  # in the same moment as its turn comes
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert await queue.take(flow("bank")) is worker
