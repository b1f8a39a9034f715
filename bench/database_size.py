"""`make bench-database-size`: the bytes of a row in the tables that PostgreSQL has beside the history, with indexes.

The product's own code writes the rows of made-up messages: events, the keys of rows that ClickHouse stores, Message-IDs
of conversations, and senders. Held messages are copied from the events by a statement.
"""

import argparse
import random
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import asyncpg
import msgspec
import uvloop

from bench import history as made
from mailwarden.database.migrations import migrate
from mailwarden.database.pool import Database
from mailwarden.events.judged import JudgedEvents
from mailwarden.history import open_history
from mailwarden.history.clickhouse.ledger import AnnouncedRow, Ledger
from mailwarden.history.clickhouse.rows import EncodedRow
from mailwarden.history.senders import SenderHistory
from mailwarden.model.envelope import Envelope
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from rig.folders import remove_folder, temporary_folder
from rig.postgresql import Postgresql

BATCH = 2_000
COUNTED = 10  # of so many batches one is counted as senders: this takes most of the time
# By the name of the coefficient: a row of the first table, with its rows of the others.
TABLES = {
    "eventBytes": ("events_default",),
    "ledgerBytes": ("history_ledger",),
    "threadBytes": ("thread_messages",),
    "contactBytes": ("relationships",),
    "heldBytes": ("quarantine", "quarantine_recipients"),
}
# The tenants of made-up messages do not exist.
_HOLD = """
ALTER TABLE quarantine DROP CONSTRAINT quarantine_tenant_fkey;
INSERT INTO quarantine (uid, tenant, ggrid, vault, address, size, sender, from_address, from_name, subject, verdict,
                        received, expires)
SELECT id, tenant, subject::uuid, '00000000-0000-4000-8000-000000000000', sha256(subject::bytea), 20480,
       data::json ->> 'sender', data::json ->> 'fromAddress', 'Person', data::json ->> 'subject',
       data::json ->> 'verdict', time, time + INTERVAL '30 days'
FROM events ORDER BY number;
INSERT INTO quarantine_recipients (message, number, recipient, folded)
SELECT id, 1, data::json -> 'recipients' ->> 0, data::json -> 'recipients' ->> 0 FROM events ORDER BY number;
"""


def make_requests(count: int) -> Iterator[FinishedRequest]:
    """Yield messages with the distributions of `bench.history`."""
    chosen = random.Random(19)
    verdicts, shares = list(made.SHARES), list(made.SHARES.values())
    tenants, tenant_shares = list(made.TENANTS), list(made.TENANTS.values())
    patterns = [_pattern(verdict, chosen) for verdict in chosen.choices(verdicts, shares, k=200)]
    for number in range(count):
        sender, _, ip = made.sender(int(made.SENDERS ** chosen.random()))
        pattern = patterns[number % len(patterns)]
        (tenant,) = chosen.choices(tenants, tenant_shares)
        summary = msgspec.structs.replace(
            pattern.summary,
            sha256=f"{chosen.getrandbits(256):064x}",
            from_address=sender,
            subject=made.subject(chosen.randrange(made.SUBJECTS)),
            message_id=f"<{chosen.getrandbits(128):032x}@made.example>",
        )
        recipient = f"user{chosen.randrange(made.RECIPIENTS)}@tenant{tenants.index(tenant)}.example"
        envelope = Envelope(f"bounce@{sender.partition('@')[2]}", (recipient,), ip)
        yield msgspec.structs.replace(pattern, ggrid=new_ggrid(), tenant=tenant, summary=summary, envelope=envelope)


def _pattern(verdict: Verdict, chosen: random.Random) -> FinishedRequest:
    tags = tuple(sorted(set(chosen.choices(made.TAGS, k=chosen.randint(0, 4)))))
    return made.make_request(verdict=verdict, tags=tags)


async def write_rows(database: Database, count: int) -> None:
    """Write events, keys, Message-IDs and senders in batches, as a guard does whose history is in ClickHouse."""
    ledger, events, senders = Ledger(database), JudgedEvents(), SenderHistory(open_history(database).senders)
    today, batch, number = datetime.now(UTC).date(), list[AnnouncedRow](), 0
    counting = await senders.counting()
    for done, request in enumerate(make_requests(count), 1):
        batch.append(AnnouncedRow(EncodedRow(request, today, b""), events.event_of(request)))
        if len(batch) == BATCH or done == count:
            noted = await ledger.note(Scope.deployment(), batch, None if number % COUNTED else counting)
            for counts in noted.counts:
                senders.stored(counts)
            batch, number = [], number + 1


async def measure(url: str, count: int) -> Mapping[str, tuple[int, float]]:
    """Write the rows; return the number of rows and the bytes of one with indexes, by coefficient."""
    await migrate(url)
    database, connection = Database(url), await asyncpg.connect(url, command_timeout=600)
    try:
        await write_rows(database, count)
        await connection.execute(_HOLD)
        found = {}
        for name, tables in TABLES.items():
            rows = int(await connection.fetchval(f"SELECT count(*) FROM {tables[0]}"))
            sizes = [int(await connection.fetchval(f"SELECT pg_total_relation_size('{each}')")) for each in tables]
            found[name] = rows, sum(sizes) / max(rows, 1)
        return found
    finally:
        await connection.close()
        await database.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="Example: python -m bench.database_size --rows 200000")
    parser.add_argument("--rows", type=int, default=200_000, help="messages (default: %(default)s)")
    arguments = parser.parse_args()
    folder = temporary_folder()
    postgresql = Postgresql(folder / "postgresql")
    began = time.perf_counter()
    try:
        postgresql.start()
        found = uvloop.run(measure(postgresql.create_database("bench"), arguments.rows))
    finally:
        postgresql.stop()
        remove_folder(folder)
    for name, (rows, size) in found.items():
        print(f"{name} {size:.0f} bytes a row with indexes, {rows:,} rows of {' and '.join(TABLES[name])}")
    print(f"{arguments.rows:,} messages in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
