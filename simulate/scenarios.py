"""The scenarios: load and events of a run, and the run itself."""

import asyncio
import math
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from uuid import UUID

from mailwarden.abby.guard_client import GuardClient
from mailwarden.abby.guard_transport import ScanRequest
from mailwarden.abby.guards import Guard, GuardWatch
from mailwarden.errors import MailwardenError
from mailwarden.model.envelope import Envelope
from mailwarden.serving.spool import Spooled
from mailwarden.serving.uploads import Upload
from mailwarden.telemetry.metrics import Metrics
from simulate import clock
from simulate.guards import GuardSize, SimulatedGuard, SimulatedTransport
from simulate.policies import ObservedBudget, Policy
from simulate.results import Answer, Message, Result

MEAN_WORK = 0.1  # seconds of a slot
SPREAD = 0.55  # of the logarithm: the 99th percentile of the work is 3.6 times its median, as in docs/performance.md
DEADLINE = 30.0
WARM_UP = 2.0
DEFAULT_SIZE = GuardSize()
LOSS = WARM_UP + 3.0  # when guards are lost
SAMPLES = 1_000


@dataclass(frozen=True, slots=True)
class Fleet:
    guards: int
    abbys: int
    size: GuardSize = DEFAULT_SIZE

    @property
    def capacity(self) -> float:
        """Return the messages a second that all guards can process."""
        return self.guards * self.size.slots / MEAN_WORK


class World:
    """All guards and abbys of a run."""

    def __init__(self, fleet: Fleet, policy: Policy, messages: Sequence[Message], seed: int) -> None:
        self.fleet = fleet
        self._policy = policy
        self._seed = seed
        self._messages = messages
        self._work = [each.work for each in messages]
        self.guards = {
            f"https://guard-{n}.example:9785": SimulatedGuard(f"guard-{n}", fleet.size, random.Random(f"{seed} g{n}"))
            for n in range(fleet.guards)
        }
        self._starts = 0
        self._watches: list[GuardWatch] = []
        self._clients: list[tuple[GuardClient, ObservedBudget]] = []
        self.rooms: list[float] = []
        self.capacities: list[float] = []
        self.answers: list[Answer] = []

    @property
    def guard_list(self) -> list[SimulatedGuard]:
        return list(self.guards.values())

    def share(self, share: float) -> list[SimulatedGuard]:
        """Return the first guards, as one rack has them."""
        return self.guard_list[: max(1, round(share * len(self.guards)))]

    async def start(self) -> None:
        for _ in range(self.fleet.abbys):
            watch, client = await self._start_abby()
            self._watches.append(watch)
            self._clients.append(client)

    async def _start_abby(self) -> tuple[GuardWatch, tuple[GuardClient, ObservedBudget]]:
        self._starts += 1
        source = random.Random(f"{self._seed} abby {self._starts}")
        known = [Guard(address, SimulatedTransport(guard, self._work)) for address, guard in self.guards.items()]
        watch = GuardWatch(known, source)
        await watch.start(lambda: None)
        chooser, budget = self._policy.chooser(source, self.guards), self._policy.budget()
        return watch, (GuardClient(watch, Metrics(), chooser=chooser, budget=budget), budget)

    async def restart_abbys(self, every: float) -> None:
        """Replace the abbys one after another; each finishes its messages."""
        for number in range(self.fleet.abbys):
            old = self._watches[number]
            self._watches[number], self._clients[number] = await self._start_abby()
            await old.stop()
            await asyncio.sleep(every)

    async def stop(self) -> None:
        for watch in self._watches:
            await watch.stop()

    async def submit(self, number: int) -> None:
        message, loop = self._messages[number], asyncio.get_running_loop()
        request = ScanRequest(UUID(int=number), Envelope("", ()), (), "simulated")
        (client, budget), error, reason = self._clients[message.abby], "", ""
        try:
            client.require_room()
            await client.submit(UPLOAD, request, message.arrival + DEADLINE)
        except MailwardenError as failed:
            error = failed.code
            reason = budget.pop_reason() or error  # nothing else ran since the budget ended the attempts
            self._note_room()
        self.answers.append(Answer(message.arrival, loop.time(), error, reason))

    def _note_room(self) -> None:
        if len(self.rooms) < SAMPLES:
            guards = self.guards.values()
            self.rooms.append(sum(each.room for each in guards) / sum(each.admission.maximum for each in guards))

    async def watch_capacity(self) -> None:
        """Note the capacity of the running guards twice a second."""
        while True:
            self.capacities.append(sum(each.speed for each in self.guards.values()) / len(self.guards))
            await asyncio.sleep(0.5)


_BODY = Spooled.of(b"simulated")
UPLOAD = Upload("multipart/form-data; boundary=simulated", b"{}", _BODY, _BODY)

Events = Callable[[World], Coroutine[object, object, None]]


async def nothing(world: World) -> None:
    """Leave the guards alone."""


async def slow_guards(world: World) -> None:
    for guard in world.guard_list[::20]:
        guard.slowness = 10.0


async def rack_cut_off(world: World) -> None:
    await _until(LOSS)
    for guard in world.share(0.2):
        guard.cut_off()


async def guards_killed(world: World) -> None:
    await _until(LOSS)
    for guard in world.share(0.2):
        guard.kill()


async def rolling_restart(world: World) -> None:
    await _restart_in_waves(world, None)


async def upgrade(world: World) -> None:
    """Restart abbys and guards; the new guards accept more messages than the old ones."""
    larger = GuardSize(world.fleet.size.slots, world.fleet.size.maximum + world.fleet.size.slots)
    await asyncio.gather(_restart_in_waves(world, larger), world.restart_abbys(15.0 / world.fleet.abbys))


async def _restart_in_waves(world: World, size: GuardSize | None) -> None:
    """Restart 40 % of the guards, 5 % at a time; about a sixth is down at any time."""
    await _until(WARM_UP)
    guards = world.share(0.4)
    wave = max(1, math.ceil(len(guards) / 8))
    running = []
    for start in range(0, len(guards), wave):
        running += [asyncio.create_task(guard.restart(4.0, size)) for guard in guards[start : start + wave]]
        await asyncio.sleep(1.5)
    await asyncio.gather(*running)


async def _until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - asyncio.get_running_loop().time()))


@dataclass(frozen=True, slots=True)
class Scenario:
    """The load, as a share of the capacity, its duration, and the events meanwhile."""

    name: str
    load: float
    seconds: float
    events: Events = nothing


# A fleet that has not recovered within 30 s must be seen: the load goes on for 35 s after the loss.
AFTER_LOSS = LOSS - WARM_UP + 35.0
STEADY = Scenario("load 0.8", 0.8, 4.0)
OVERLOAD = Scenario("load 3", 3.0, 2.0)
SLOW = Scenario("5 % of the guards ten times slower, load 0.7", 0.7, 5.0, slow_guards)
PARTITION = Scenario("network partition: 20 % of the guards, load 0.7", 0.7, AFTER_LOSS, rack_cut_off)
KILLED = Scenario("20 % of the guards killed, load 0.7", 0.7, AFTER_LOSS, guards_killed)
ROLLING = Scenario("rolling restart of 40 %, load 0.7", 0.7, 20.0, rolling_restart)
UPGRADE = Scenario("upgrade of abbys and 40 % of the guards, load 0.7", 0.7, 20.0, upgrade)
ALL = (STEADY, OVERLOAD, SLOW, PARTITION, KILLED, ROLLING, UPGRADE)


def make_messages(fleet: Fleet, scenario: Scenario, seed: int) -> list[Message]:
    """Return the messages of a seed; they are the same for every policy."""
    source = random.Random(f"{seed} {scenario.name}")
    rate, median = scenario.load * fleet.capacity, MEAN_WORK / math.exp(SPREAD**2 / 2)
    messages, moment = [], 0.1
    while (moment := moment + source.expovariate(rate)) < WARM_UP + scenario.seconds:
        work = median * math.exp(source.gauss(0.0, SPREAD))
        messages.append(Message(moment, source.randrange(fleet.abbys), work))
    return messages


def simulate(fleet: Fleet, scenario: Scenario, policy: Policy, seed: int) -> Result:
    """Run one scenario with one policy."""
    messages = make_messages(fleet, scenario, seed)
    return clock.run(_simulate(fleet, scenario, policy, messages, seed))


async def _simulate(fleet: Fleet, scenario: Scenario, policy: Policy, messages: Sequence[Message], seed: int) -> Result:
    world, loop = World(fleet, policy, messages, seed), asyncio.get_running_loop()
    await world.start()
    happening = loop.create_task(scenario.events(world))
    watching = loop.create_task(world.watch_capacity())
    tasks: set[asyncio.Task[None]] = set()
    for number, message in enumerate(messages):
        if message.arrival > loop.time():
            await asyncio.sleep(message.arrival - loop.time())
        task = loop.create_task(world.submit(number))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    while tasks:
        await asyncio.wait(tasks)
    watching.cancel()
    await happening
    await world.stop()
    return Result(
        answers=world.answers,
        messages=len(messages),
        attempts=sum(len(guard.attempts) for guard in world.guard_list),
        capacity=fleet.capacity,
        begin=WARM_UP,
        end=WARM_UP + scenario.seconds,
        guards=world.guard_list,
        offered=scenario.load * fleet.capacity,
        rooms=world.rooms,
        capacities=world.capacities,
    )
