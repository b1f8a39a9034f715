"""How full the quarantine is, and how long the oldest release has been waiting, as metrics."""

from typing import cast

from msgspec import Struct

from mailwarden.database.pool import Database
from mailwarden.model.scope import Scope
from mailwarden.quarantine.rows import MINE, uids_of
from mailwarden.telemetry.chore import Chore
from mailwarden.telemetry.metrics import Metrics

INTERVAL = 60.0
_MEASURE = f"""
SELECT count(*) AS messages, coalesce(sum(size), 0)::bigint AS bytes, (
    SELECT coalesce(extract(epoch FROM now() - min(changed_at)), 0)::float8
    FROM quarantine_recipients JOIN quarantine ON uid = message WHERE {MINE} AND state = 'releasing'
) AS waiting
FROM quarantine WHERE {MINE} AND address IS NOT NULL
"""  # noqa: S608 -- put together from the constant above


class Held(Struct, frozen=True):
    """What is held in all vaults together; a body that two messages share counts for each."""

    messages: int = 0
    bytes: int = 0
    waiting_seconds: float = 0.0  # since somebody asked for the oldest release that is not carried out


class FigureStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def measure(self, scope: Scope) -> Held:
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_MEASURE, uids_of(scope))
        if row is None:
            return Held()
        return Held(cast("int", row["messages"]), cast("int", row["bytes"]), cast("float", row["waiting"]))


class QuarantineFigures:
    """Measures now and then, so that a look at the metrics costs no statement."""

    def __init__(self, store: FigureStore, metrics: Metrics) -> None:
        self._store = store
        self._held = Held()
        self._chore = Chore("quarantine figures", self.measure, INTERVAL, quiet=True)
        metrics.gauge("quarantine_messages", "Messages held.").set_function(lambda: self._held.messages)
        metrics.gauge("quarantine_bytes", "Bytes of the messages held.").set_function(lambda: self._held.bytes)
        metrics.gauge(
            "quarantine_release_waiting_seconds", "Since when the oldest release waits to be carried out."
        ).set_function(lambda: self._held.waiting_seconds)

    def start(self) -> None:
        self._chore.start(rested=True)

    async def stop(self) -> None:
        await self._chore.stop()

    async def measure(self) -> None:
        self._held = await self._store.measure(Scope.deployment())
