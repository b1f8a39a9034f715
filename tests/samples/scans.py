"""Scans of a message in memory."""

import time
from collections.abc import Sequence
from uuid import UUID

from mailwarden.model.envelope import Envelope
from mailwarden.model.scan import RawMessage, Scan
from mailwarden.model.tenant import AssignedBy, Assignment, RecipientGroup
from mailwarden.pipeline.collector import Collected, Collector
from mailwarden.serving.spool import Spooled

TENANT = UUID(int=1)


def scan_of(message: bytes | RawMessage, envelope: Envelope, *recipients: Sequence[str]) -> Scan:
    """Return the scan of a message for one tenant, or for one tenant with each of these recipients."""
    groups = tuple(
        RecipientGroup(Assignment(UUID(int=number), AssignedBy.DOMAINS), tuple(addresses))
        for number, addresses in enumerate(recipients or (envelope.recipients,), 1)
    )
    return Scan("test", envelope, groups, Spooled.of(message) if isinstance(message, bytes) else message)


async def collect_one(
    collector: Collector, message: bytes | RawMessage, envelope: Envelope, seconds: float
) -> Collected:
    """Collect the evidence for one tenant."""
    [collected] = await collector.collect(scan_of(message, envelope), time.monotonic() + seconds)
    return collected
