"""Puts the scan source `smtp` together: the next hop, delivery, quarantine, and the port."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from mailwarden.crypto.keyring import read_ring
from mailwarden.guard.delivery import PATIENCE, Delivery
from mailwarden.guard.delivery_headers import ResultSeal
from mailwarden.guard.house import House
from mailwarden.guard.next_hop import NextHop
from mailwarden.guard.passes import Passes
from mailwarden.guard.quarantine import start_quarantine
from mailwarden.guard.sources.smtp import Smtp
from mailwarden.guard.sources.smtp_listener import SmtpListener, greeting_name
from mailwarden.quarantine.bypass import BypassSeal
from mailwarden.quarantine.release_store import ReleaseStore

PASS_MARGIN = 60.0  # seconds beyond the longest delivery for which a pass is not given to another


@asynccontextmanager
async def assembled_smtp(house: House, guard: str) -> AsyncIterator[Callable[[], None]]:
    """Listen for Postfix until the block ends, where the configuration says so; yield what closes the doors."""
    config = house.config
    settings = config.scan_sources.smtp
    if settings is None:
        yield lambda: None
        return
    patience, name = config.analysis_timeout / 1000, greeting_name(guard)
    async with AsyncExitStack() as stack:
        hop = NextHop(settings.next_hop_address, settings.next_hop_timeout / 1000, name)
        stack.callback(hop.close)
        key = read_ring(house.folder / config.contents.key, "contents.key")
        keeper = start_quarantine(house, key=key, hop=hop, stack=stack)
        source = Smtp(
            settings,
            admission=house.admission,
            processing=house.processing,
            tenants=house.tenants,
            delivery=Delivery(hop, ResultSeal(key), keeper, house.metrics),
            passes=Passes(BypassSeal(key), ReleaseStore(house.database), PATIENCE * hop.timeout + PASS_MARGIN),
            spool=house.spool,
            analysis_timeout=patience,
        )
        listener = SmtpListener(source, name, patience, house.metrics)
        stack.push_async_callback(listener.stop, config.shutdown_grace_period / 1000)
        await listener.start()
        yield listener.close_doors
