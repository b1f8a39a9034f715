"""Changes without pause (list calls, held messages) and a client that reads their events through every outage."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import UUID

import msgspec

from mailwarden.errors import MailwardenError
from mailwarden.event_delivery.requests import EventPage
from mailwarden.events.record import EventRecord
from mailwarden.model.scope import Actor, Scope
from mailwarden.quarantine.store import BodyGone
from mailwarden.serving.spool import Spooled
from tests.faults.list_calls import ListCaller
from tests.integration.held_messages import RAW, finished
from tests.integration.quarantine.quarantine_setup import QuarantineSetup
from workshop.rig.caller import Caller, NoAnswerError

LIST = "sender-block"
NAMES = [f"n{number:02}@mirror.example" for number in range(24)]
ALL = Scope.deployment()


@dataclass(slots=True)
class EventClient:
    """Follows `next`; a page whose answer was lost is read again, and its events are known by their ids."""

    events: list[EventRecord] = field(default_factory=list)
    known: dict[UUID, EventRecord] = field(default_factory=dict)
    duplicates: int = 0
    cursor: str = ""

    async def follow(self, caller: Caller, stopped: asyncio.Event) -> None:
        while not stopped.is_set():
            try:
                await self.read(caller, wait=1)
            except NoAnswerError:
                await asyncio.sleep(0.1)

    async def read(self, caller: Caller, wait: int = 0) -> int:
        """Read one page; return the number of its events. Every third page is processed twice, as after a crash."""
        after = f"&after={self.cursor}" if self.cursor else ""
        answer = await caller.call("GET", f"/v1/events?limit=500&wait={wait}{after}")
        if answer.status != 200:
            assert answer.status == 503, str(answer)
            await asyncio.sleep(0.1)
            return 0
        page = msgspec.json.decode(answer.body, type=EventPage)
        for event in page.events:
            if event.id in self.known:
                assert self.known[event.id] == event, "a duplicate differs"
                self.duplicates += 1
            else:
                self.known[event.id] = event
                self.events.append(event)
        if not page.events or random.random() > 0.3:
            self.cursor = page.next
        return len(page.events)

    def of(self, kind: str) -> Iterator[EventRecord]:
        return (event for event in self.events if event.type == kind)

    def mirrored(self) -> set[str]:
        """Return the entries of the list after the replay of its events; another order gives other entries."""
        entries: set[str] = set()
        for event in self.of("list.changed"):
            changed = set(msgspec.convert(event.data["entries"], list[str]))
            entries = entries - changed if event.data["action"] == "delete" else entries | changed
        return entries


async def change_list(caller: ListCaller, writer: int, stopped: asyncio.Event) -> None:
    """Add and delete the same few entries as all other writers."""
    chance = random.Random(writer)
    while not stopped.is_set():
        names = chance.sample(NAMES, chance.randint(1, 6))
        try:
            if chance.random() < 0.5:
                await caller.add(LIST, names, "x")
            else:
                await caller.delete(LIST, names)
        except NoAnswerError:
            await asyncio.sleep(0.05)
        await asyncio.sleep(chance.uniform(0, 0.05))


async def hold_messages(setup: QuarantineSetup, writer: int, stopped: asyncio.Event) -> None:
    """Hold messages, try each again until it is known to be held, and delete every second one."""
    chance = random.Random(writer)
    while not stopped.is_set():
        request = finished(setup.north, subject=f"{writer} {chance.random()}")
        try:
            uid = await setup.writer.hold(request, Spooled.of(RAW))
            await setup.writer.hold(request, Spooled.of(RAW))  # a guard that is in doubt tries again
            if chance.random() < 0.5:
                await setup.store.delete(ALL, uid, None, Actor("test"))
        except (MailwardenError, BodyGone):
            await asyncio.sleep(0.1)
        await asyncio.sleep(chance.uniform(0, 0.1))


def doubled(events: Iterator[EventRecord]) -> list[str]:
    """Return the subjects that have more than one of these events."""
    return [subject for subject, count in Counter(event.subject for event in events).items() if count > 1]
