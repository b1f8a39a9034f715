"""The cost of grouping in a flood: messages that are all alike, and messages that are all different."""

import asyncio
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from mailwarden.database.migrations import migrate
from mailwarden.database.pool import Database
from mailwarden.history.opening import open_history
from mailwarden.history.writer import BATCH
from mailwarden.model.scope import Scope
from mailwarden.model.similarity import BIN_BYTES, BINS, Key, KeyKind, Similarity
from workshop.rig.folders import remove_folder, temporary_folder
from workshop.rig.postgresql import Postgresql

TENANTS = tuple(UUID(int=number) for number in range(1, 11))
TEXT_KEYS = 6
GOAL = 2.0  # times the cost of the first messages that the last ones may have


def measure_flood(messages: int) -> int:
    """Print the milliseconds for each message at the beginning and at the end of each flood."""
    folder = Path(temporary_folder())
    postgresql = Postgresql(folder / "postgresql")
    try:
        postgresql.start()
        return asyncio.run(_measure(postgresql.create_database("flood"), messages))
    finally:
        postgresql.stop()
        remove_folder(folder)


async def _measure(url: str, messages: int) -> int:
    await migrate(url)
    database = Database(url)
    store = open_history(database).campaigns
    chance = random.Random(1)  # noqa: S311 - repeatable, not a secret
    alike = _message(chance)
    floods: tuple[tuple[str, Callable[[], Similarity]], ...] = (
        ("all alike", lambda: alike),
        ("one link, different texts", lambda: _message(chance, alike.keys[-1])),
        ("all different", lambda: _message(chance)),
    )
    part = max(BATCH, messages // 10)
    slower = 0.0
    for name, make in floods:
        took: list[float] = []
        for start in range(0, messages, BATCH):
            batch = [(TENANTS[number % len(TENANTS)], make()) for number in range(start, start + BATCH)]
            began = time.perf_counter()
            await store.assign(Scope.deployment(), batch, datetime.now(UTC).date())
            took.append((time.perf_counter() - began) * 1000 / BATCH)
        first, last = (sum(each) / len(each) for each in (took[: part // BATCH], took[-(part // BATCH) :]))
        slower = max(slower, last / first)
        print(f"{name:<28} first {part:,}: {first:.3f} ms a message   last {part:,}: {last:.3f} ms a message")
    await database.close()
    return int(slower > GOAL)


def _message(chance: random.Random, link: Key | None = None) -> Similarity:
    """Make the keys of a message; `link` is one that it shares with others."""
    text = tuple(Key(KeyKind.TEXT, chance.getrandbits(63)) for _ in range(TEXT_KEYS))
    other = Key(KeyKind.SENDER, chance.getrandbits(63))
    return Similarity(
        (*text, other, link or Key(KeyKind.LINK, chance.getrandbits(63))), chance.randbytes(BINS * BIN_BYTES)
    )
