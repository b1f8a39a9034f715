"""The condition that a statement has for the rows of its scope.

A tenant that moved to another cell, or is on its way from there, may have rows in this database. Only its move sees
them: a scope of the whole deployment is without them, and the scope of a user or key has no such tenant.
"""

from typing import cast
from uuid import UUID

from mailwarden.database.pool import Connection

ELSEWHERE = "ARRAY(SELECT place.tenant FROM tenant_places AS place WHERE place.state IN ('moved', 'arriving'))"


def served(column: str = "tenant") -> str:
    """Return the condition that a tenant is in this cell; it is true for a row without a tenant.

    With CASE the planner expects half of the rows. For `<> ALL` it expects none if there are few tenants.
    """
    return f"CASE WHEN {column} = ANY ({ELSEWHERE}) THEN false ELSE true END"


def in_scope(column: str = "tenant", scope: str = "$1") -> str:
    """Return the condition that a tenant is in the scope, a parameter: NULL is every tenant of this cell."""
    return f"({scope}::uuid[] IS NULL AND {served(column)} OR {column} = ANY ({scope}))"


async def read_elsewhere(connection: Connection) -> frozenset[UUID]:
    """Return the tenants that moved to another cell or are on their way from there."""
    return frozenset(cast("list[UUID]", await connection.fetchval(f"SELECT {ELSEWHERE}")))


def any_served(column: str = "tenants") -> str:
    """Return the condition that one of several tenants is in this cell; it is true for a row without tenants."""
    return f"(coalesce(cardinality({column}), 0) = 0 OR NOT {column} <@ {ELSEWHERE})"
