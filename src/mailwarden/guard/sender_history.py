"""Reports whether a tenant knows the sender: the findings `first-contact` and `known-sender`."""

import time
from collections.abc import Iterator
from uuid import UUID

from mailwarden.history.senders import KnownSender, SenderHistory
from mailwarden.history.store import ContactStats
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Finding, Report, Status
from mailwarden.model.place import area
from mailwarden.model.summary import MessageSummary

ANALYZER = "relationship"
# A younger or smaller history proves nothing about a sender.
RIPE_DAYS, RIPE_MESSAGES = 7, 200
KNOWN_DAYS, KNOWN_MESSAGES = 3, 5
KNOWN_AGE = 14  # days since the first message: an address made for an attack is seldom kept so long


class SenderHistoryReporter:
    def __init__(self, senders: SenderHistory) -> None:
        self._senders = senders

    async def report(
        self, tenant: UUID, envelope: Envelope, summary: MessageSummary, *, ambiguous_sender: bool = False
    ) -> Report:
        """Return the report; it is skipped if the sender is ambiguous or the lookup fails, and never required."""
        started = time.perf_counter()
        known = (
            None if ambiguous_sender else await self._senders.lookup(tenant, summary.from_address, envelope.recipients)
        )
        took = round((time.perf_counter() - started) * 1000, 3)
        if known is None:
            return Report(ANALYZER, required=False, status=Status.SKIPPED, milliseconds=took)
        found = tuple(findings_of(known, summary.from_address))
        return Report(ANALYZER, required=False, status=Status.FINISHED, milliseconds=took, findings=found)


def findings_of(known: KnownSender, sender: str) -> Iterator[Finding]:
    if known.sender.messages == 0 and known.replies.messages == 0:
        if known.tenant.days >= RIPE_DAYS and known.tenant.messages >= RIPE_MESSAGES:
            yield Finding("relationship.first-contact", area("From"), {"address": sender[:200]})
    elif _is_known(known.sender):
        yield Finding(
            "relationship.known-sender", area("From"), {"address": sender[:200], "count": known.sender.messages}
        )


def _is_known(sender: ContactStats) -> bool:
    return sender.days >= KNOWN_DAYS and sender.messages >= KNOWN_MESSAGES and sender.age >= KNOWN_AGE
