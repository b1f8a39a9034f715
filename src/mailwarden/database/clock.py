"""The time for jobs that delete: PostgreSQL's, as one host with a wrong clock must not delete the deployment's data."""

from datetime import UTC, datetime, timedelta
from typing import cast

from mailwarden.database.pool import Connection
from mailwarden.errors import CommandError
from mailwarden.telemetry.logs import get_logger

MAX_DIFFERENCE = timedelta(hours=1)  # between this host's clock and PostgreSQL's; above it, nothing is deleted
_NOW = "SELECT clock_timestamp()"

_log = get_logger("database.clock")


async def read_now(connection: Connection) -> datetime:
    """Return PostgreSQL's time; raise CommandError if this host's clock differs: one of the two is wrong."""
    there = cast("datetime", await connection.fetchval(_NOW)).astimezone(UTC)
    off = datetime.now(UTC) - there
    if abs(off) > MAX_DIFFERENCE:
        seconds = round(off.total_seconds())
        _log.error("clock_differs", seconds=seconds)
        raise CommandError(
            f"This host's clock is {abs(seconds)} s {'ahead of' if seconds > 0 else 'behind'} PostgreSQL's; "
            "nothing is deleted. Set the clocks of both hosts by NTP (`timedatectl set-ntp true`)."
        )
    return there
