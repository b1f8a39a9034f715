"""Opens the delivery of events with a configuration: for abby, and for the test of a receiver."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mailwarden.crypto.keyring import KeyRing
from mailwarden.crypto.seal import Seal
from mailwarden.database.pool import Database
from mailwarden.event_delivery.addresses import AddressRules
from mailwarden.event_delivery.delivery import Delivery
from mailwarden.event_delivery.http_client import client_trust, open_http_client
from mailwarden.event_delivery.model import PURPOSE
from mailwarden.event_delivery.name_lookup import Lookup, NameLookup
from mailwarden.event_delivery.senders import Channels
from mailwarden.event_delivery.service import ReceiverService
from mailwarden.event_delivery.store import ReceiverStore
from mailwarden.events.reader import EventReader
from mailwarden.telemetry.metrics import Metrics


@asynccontextmanager
async def open_channels(
    rules: AddressRules, authority: Path | None, folder: Path, pepper: KeyRing, lookup: Lookup | None = None
) -> AsyncIterator[Channels]:
    """Open what senders need: `rules` are those of the deployment's receivers."""
    trust, lookup = client_trust(authority), lookup or NameLookup()
    async with (
        open_http_client(rules, trust, lookup) as http,
        open_http_client(rules.for_tenants(), trust, lookup) as tenant_http,
    ):
        yield Channels(http, tenant_http, trust, rules, folder, Seal(pepper, PURPOSE), lookup)


@asynccontextmanager
async def open_delivery(database: Database, channels: Channels, metrics: Metrics) -> AsyncIterator[Delivery]:
    """Deliver events while the block runs."""
    delivery = Delivery(ReceiverStore(database), EventReader(database), channels, metrics)
    delivery.start()
    try:
        yield delivery
    finally:
        await delivery.stop()


def open_receivers(database: Database, pepper: KeyRing) -> ReceiverService:
    return ReceiverService(ReceiverStore(database), EventReader(database), Seal(pepper, PURPOSE))
