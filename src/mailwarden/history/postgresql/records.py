"""The records of rows of history, with the campaigns that their columns have."""

from collections.abc import Sequence
from uuid import UUID

from mailwarden.database.pool import Connection, Row
from mailwarden.database.rows import read
from mailwarden.history.store import Cursor, StoredRecord
from mailwarden.model.ggrid import day_of
from mailwarden.model.record import CampaignIds
from mailwarden.model.scope import Scope

_RECORDS = """
SELECT tenant, ggrid, record, campaign, shared_campaign FROM history
WHERE day = ANY($1::date[]) AND ggrid = ANY($2::uuid[]) AND ($4::uuid[] IS NULL OR tenant = ANY ($4))
  AND (ggrid, tenant) IN (SELECT * FROM unnest($2::uuid[], $3::uuid[]))
"""


async def fetch_records(connection: Connection, scope: Scope, cursors: Sequence[Cursor]) -> dict[Cursor, StoredRecord]:
    """Return the records of these rows that exist in the scope."""
    ggrids, tenants = [cursor.ggrid for cursor in cursors], [cursor.tenant for cursor in cursors]
    days = {day for ggrid in ggrids if (day := day_of(ggrid)) is not None}
    records = records_in(await connection.fetch(_RECORDS, [*days], ggrids, tenants, scope.uids()))
    return {cursor: record for cursor, record in records.items() if scope.allows(cursor.tenant)}


def records_in(rows: Sequence[Row]) -> dict[Cursor, StoredRecord]:
    return {cursor_in(row): record_in(row) for row in rows}


def cursor_in(row: Row) -> Cursor:
    return Cursor(read(row, "ggrid", UUID), read(row, "tenant", UUID))


def record_in(row: Row) -> StoredRecord:
    """Return what the columns `record`, `campaign` and `shared_campaign` hold."""
    grouped = row["campaign"] is not None
    campaign = CampaignIds(read(row, "campaign", UUID), read(row, "shared_campaign", UUID)) if grouped else None
    return StoredRecord(read(row, "record", bytes), campaign)
