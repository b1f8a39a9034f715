"""The record of a row of history, with the campaign that its columns have."""

from uuid import UUID

from mailwarden.database.pool import Row
from mailwarden.database.rows import read
from mailwarden.history.store import StoredRecord
from mailwarden.model.record import CampaignIds


def record_in(row: Row) -> StoredRecord:
    """Return what the columns `record`, `campaign` and `shared_campaign` hold."""
    grouped = row["campaign"] is not None
    campaign = CampaignIds(read(row, "campaign", UUID), read(row, "shared_campaign", UUID)) if grouped else None
    return StoredRecord(read(row, "record", bytes), campaign)
