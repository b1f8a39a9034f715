"""`python -m workshop.bench.senders`: the time to look up a sender in PostgreSQL, for three kinds of messages."""

import argparse
import asyncio
import statistics
import time
from pathlib import Path
from uuid import UUID

import asyncpg

from mailwarden.database.migrations import migrate
from mailwarden.database.pool import Database
from mailwarden.history.opening import open_history
from mailwarden.senders import lookup
from mailwarden.senders.lookup import SenderHistory
from mailwarden.senders.relations import Relation
from workshop.rig.folders import remove_folder, temporary_folder
from workshop.rig.postgresql import Postgresql

TENANT = UUID("6f1d2c3b-0000-4000-8000-000000000001")
ROUNDS = 1_000
_FILL = """
INSERT INTO relationships SELECT $1, substr(sha256(n::text::bytea), 1, 16), 9, 9, current_date - 30, current_date
FROM generate_series(1, $2::integer) AS n;
"""
_FILL_MESSAGES = """
INSERT INTO thread_messages SELECT $1, substr(sha256(n::text::bytea), 1, 16), current_date
FROM generate_series(1, $2::integer) AS n;
"""
_FILL_DOMAINS = """
INSERT INTO domain_memory SELECT substr(sha256(n::text::bytea), 1, 16), 255, 0, 9, current_date - 30, current_date
FROM generate_series(1, $1::integer) AS n;
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of contacts, and of messages of conversations")
    arguments = parser.parse_args()
    folder = Path(temporary_folder())
    postgresql = Postgresql(folder / "postgresql")
    try:
        postgresql.start()
        asyncio.run(_measure(postgresql.create_database("bench"), arguments.rows))
    finally:
        postgresql.stop()
        remove_folder(folder)


async def _measure(url: str, rows: int) -> None:
    await migrate(url)
    connection = await asyncpg.connect(url)
    await connection.execute(_FILL, TENANT, rows)
    await connection.execute(_FILL_MESSAGES, TENANT, rows)
    await connection.execute(_FILL_DOMAINS, rows // 10)
    await connection.execute("ANALYZE")
    await connection.close()
    lookup.DEADLINE = 20.0
    database = Database(url)
    sender_history = SenderHistory(open_history(database).senders)
    for name, relation in _relations():
        took = []
        for number in range(ROUNDS):
            sender = f"{number}@northbridge.example"
            began = time.perf_counter()
            await sender_history.lookup(TENANT, sender, ["bob@acme.example"], relation, relation.domain)
            took.append((time.perf_counter() - began) * 1000)
        middle, slow = statistics.median(took), statistics.quantiles(took, n=20)[-1]
        print(f"{name:50} median {middle:6.2f} ms   95 % {slow:6.2f} ms")
    await database.close()


def _relations() -> list[tuple[str, Relation]]:
    own = ("acme.example",)
    plain = Relation(address="a", own=own)
    known = Relation(
        address="kim@northbridge.example", domain="northbridge.example", provider="northbridge.example",
        name="field kim", own=own,
    )  # fmt: skip
    answer = Relation(
        address="kim@northbridge.example", domain="northbridge.example", provider="northbridge.example",
        name="field kim", own=own, answers=True,
        references=tuple(f"<{number}@northbridge.example>" for number in range(10)),
        accounts=tuple(f"US:021000021:{number}" for number in range(5)),
    )  # fmt: skip
    return [
        ("without a domain and a name", plain),
        ("with domain, name and the deployment's memory", known),
        ("an answer with ten references and five accounts", answer),
    ]


if __name__ == "__main__":
    main()
