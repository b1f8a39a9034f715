"""Finished guard requests: stored, searched, counted and deleted, and the history of senders.

`open_history` is the only place that names an implementation of the store.
"""

from mailwarden.database.pool import Database
from mailwarden.events.judged import NO_JUDGED_EVENTS, JudgedEvents
from mailwarden.history.postgresql.store import PostgresqlHistoryStore
from mailwarden.history.store import HistoryStore


def open_history(database: Database, judged: JudgedEvents = NO_JUDGED_EVENTS) -> HistoryStore:
    """Return the history store that uses this pool of connections; nothing connects before the first call.

    `judged` selects the messages that get an event when they are stored.
    """
    return PostgresqlHistoryStore(database, judged)
