"""Chooses the implementation of the history store."""

from mailwarden.database.pool import Database
from mailwarden.events.scanned import NO_SCANNED_EVENTS, ScannedEvents
from mailwarden.history.clickhouse.client import Clickhouse
from mailwarden.history.clickhouse.store import ClickhouseHistoryStore
from mailwarden.history.postgresql.store import PostgresqlHistoryStore
from mailwarden.history.store import HistoryStore


def open_history(
    database: Database, judged: ScannedEvents = NO_SCANNED_EVENTS, *, clickhouse: Clickhouse | None = None
) -> HistoryStore:
    """Return the history store that uses these connections; nothing connects before the first call.

    `judged` selects the messages that get an event when they are stored. With `clickhouse` the rows are there.
    """
    if clickhouse is not None:
        return ClickhouseHistoryStore(clickhouse, database, judged)
    return PostgresqlHistoryStore(database, judged)
