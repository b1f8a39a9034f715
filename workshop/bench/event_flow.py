"""The load of `bench.events --only-beside`, a process of its own: it writes events at a rate, reads them from abby.

Its parent writes `on`, `off` and `end` to its standard input and reads one line of JSON after each of them.
"""

import argparse
import asyncio
import os
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

import msgspec
import uvloop

from mailwarden.database.pool import Database
from mailwarden.events.catalogue import MessageScanned
from mailwarden.events.outbox import NewEvent, new_event, record
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.tenant import Profile
from workshop.rig.caller import Caller, caller_context

GUARD = "bench"  # the guard of our events: scans write events of the same type
WRITERS = 4
WAIT = 5  # seconds of a long poll
DRAIN = 30.0  # seconds for the events on the way after `off`
TOKEN = "MAILWARDEN_BENCH_TOKEN"
DATABASE = "MAILWARDEN_BENCH_DATABASE"


class _Data(msgspec.Struct):
    guard: str


class _Event(msgspec.Struct):
    time: datetime
    data: _Data


class _Page(msgspec.Struct):
    events: list[_Event]
    next: str


_page = msgspec.json.Decoder(_Page).decode


class Summary(msgspec.Struct, frozen=True):
    """The result of all phases: delays in milliseconds from the record of an event to its arrival."""

    events: int
    seconds: float  # from the first event of each phase to its last arrival
    p50: float
    p99: float

    @property
    def rate(self) -> float:
        return self.events / self.seconds


@dataclass(slots=True)
class Flow:
    """Writes and reads between `on` and `off`."""

    database: Database
    caller: Caller
    rate: int
    batch: int
    is_on: bool = False
    written: int = 0
    seconds: float = 0.0
    delays: list[float] = field(default_factory=list)

    async def run(self, commands: asyncio.StreamReader) -> None:
        while await commands.readline() == b"on\n":
            cursor = _page((await self.caller.call("GET", "/v1/events?after=latest")).body).next
            began, self.is_on = time.monotonic(), True
            writing = asyncio.create_task(self._write_all())
            reading = asyncio.create_task(self._read(cursor, writing))
            _reply({"on": True})
            await commands.readline()
            self.is_on = False
            await writing
            async with asyncio.timeout(DRAIN):
                await reading
            self.seconds += time.monotonic() - began
            _reply({"on": False})
        delays = sorted(self.delays)
        p50, p99 = (delays[int(len(delays) * share)] * 1000 for share in (0.5, 0.99))
        _reply(Summary(len(delays), self.seconds, p50, p99))

    async def _write_all(self) -> None:
        """Write with several connections, as guards do: a commit that waits for the disk holds up no other writer."""
        began = time.monotonic()
        async with asyncio.TaskGroup() as writers:
            for number in range(WRITERS):
                writers.create_task(self._write(began + number * self.batch / self.rate))

    async def _write(self, due: float) -> None:
        while self.is_on:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            async with self.database.connection() as connection:
                await record(connection, [_event() for _ in range(self.batch)])
            self.written += self.batch
            due += WRITERS * self.batch / self.rate

    async def _read(self, cursor: str, writing: asyncio.Task[None]) -> None:
        """Read until the writer has ended and its last event has arrived."""
        while not writing.done() or len(self.delays) < self.written:
            query = urlencode({"limit": 1000, "wait": WAIT, "types": MessageScanned.type, "after": cursor})
            page = _page((await self.caller.call("GET", f"/v1/events?{query}")).body)
            now = time.time()
            self.delays += [now - event.time.timestamp() for event in page.events if event.data.guard == GUARD]
            cursor = page.next


def _event() -> NewEvent:
    """Return an event of the size that scans write."""
    ggrid, now = new_ggrid(), datetime.now(UTC)
    data = MessageScanned(
        ggrid=ggrid,
        verdict=Verdict.SPAM,
        decision=Decision.QUARANTINE,
        tags=("bulk", "newsletter", "spam"),
        sender="news@sender.example",
        recipients=("bob@corp.example",),
        recipient_count=1,
        from_address="news@sender.example",
        subject="The offers of this week for bob@corp.example",
        message_id=f"<{ggrid}@mail.sender.example>",
        sha256=ggrid.hex * 2,
        size=5_120,
        source="restApi",
        guard=GUARD,
        remote_address="203.0.113.5",
        campaign=None,
        profile=Profile.BALANCED,
        incomplete=False,
        received=now,
        completed=now,
    )
    return new_event(data, None, ggrid)


def _reply(record: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(record) + b"\n")
    sys.stdout.buffer.flush()


async def _serve(arguments: argparse.Namespace) -> None:
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    database = Database(os.environ[DATABASE], WRITERS)
    async with Caller(arguments.port, caller_context(arguments.ca), os.environ[TOKEN]) as caller:
        await Flow(database, caller, arguments.rate, arguments.batch).run(commands)
    await database.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="port of abby")
    parser.add_argument("--ca", type=Path, required=True, help="certificate that abby's is signed with")
    parser.add_argument("--rate", type=int, required=True, help="events per second")
    parser.add_argument("--batch", type=int, required=True, help="events of one transaction")
    uvloop.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
