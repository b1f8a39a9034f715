"""Finished guard requests: stored, searched, counted and deleted, and the history of senders.

`open_history` is the only place that names an implementation of the store.
"""

from mailwarden.database.pool import Database
from mailwarden.history.postgresql.store import PostgresqlHistoryStore
from mailwarden.history.store import HistoryStore


def open_history(database: Database) -> HistoryStore:
    """Return the history store that uses this pool of connections; nothing connects before the first call."""
    return PostgresqlHistoryStore(database)
