"""The states of messages in PostgreSQL for a store whose rows are elsewhere: held, released and reported."""

from collections.abc import AsyncIterator, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg

from mailwarden.database.pool import Connection, Database, Row
from mailwarden.database.rows import read
from mailwarden.database.visible import in_scope
from mailwarden.history.postgresql.search import STATEMENT_TIMEOUT, STATES_OF, reading
from mailwarden.history.spans import Span
from mailwarden.history.store import Cursor, Order
from mailwarden.model.scope import Scope
from mailwarden.search.query import HELD, RELEASED, REPORTED

_STATES = (HELD, RELEASED, REPORTED)
_OF_RECIPIENT = """
SELECT DISTINCT quarantine.ggrid AS ggrid, quarantine.tenant AS tenant
FROM quarantine JOIN quarantine_recipients ON message = uid WHERE state IN ({})
"""
_WITH_STATE = {
    HELD: _OF_RECIPIENT.format("'held', 'releasing'"),
    RELEASED: _OF_RECIPIENT.format("'released'"),
    REPORTED: "SELECT DISTINCT training_reports.ggrid, training_reports.tenant FROM training_reports WHERE true",
}
_CURSORS = """
SELECT ggrid, tenant FROM ({rows} AND {table}.ggrid BETWEEN $1 AND $2) AS found
WHERE (ggrid, tenant) >= ($1, $3) AND (ggrid, tenant) < ($2, $4) AND {scope}
ORDER BY {order} LIMIT $6
"""
_ORDERS = {Order.NEWEST: "ggrid DESC, tenant DESC", Order.OLDEST: "ggrid, tenant"}


class StatesTooSlow(Exception):
    """The states took longer than a statement of a search may."""


class StateReader:
    """Reads states; the caller restricts the keys to its scope. A statement that takes too long is StatesTooSlow."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, cursors: Sequence[Cursor]) -> Mapping[Cursor, Set[str]]:
        """Return the states of each message that has one."""
        if not cursors:
            return {}
        ggrids, tenants = [each.ggrid for each in cursors], [each.tenant for each in cursors]
        async with self._reading() as connection:
            rows = await connection.fetch(STATES_OF, ggrids, tenants)
        found = {_cursor(row): {state for state in _STATES if row[state]} for row in rows}
        return {cursor: states for cursor, states in found.items() if states}

    async def cursors(self, scope: Scope, state: str, span: Span, limit: int, order: Order) -> Sequence[Cursor]:
        """Return the first messages of the scope in this state within a span."""
        low, high = span.low, span.high
        table = "training_reports" if state == REPORTED else "quarantine"
        sql = _CURSORS.format(rows=_WITH_STATE[state], table=table, order=_ORDERS[order], scope=in_scope(scope="$5"))
        async with self._reading() as connection:
            rows = await connection.fetch(sql, low.ggrid, high.ggrid, low.tenant, high.tenant, scope.uids(), limit)
        return [_cursor(row) for row in rows]

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[Connection]:
        async with reading(self._database, STATEMENT_TIMEOUT) as connection:
            try:
                yield connection
            except asyncpg.QueryCanceledError:  # not an outage: the connection is good
                raise StatesTooSlow from None


def _cursor(row: Row) -> Cursor:
    return Cursor(read(row, "ggrid", UUID), read(row, "tenant", UUID))
