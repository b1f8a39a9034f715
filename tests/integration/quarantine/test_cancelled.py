"""A client that hangs up while its message is stored: whatever is in quarantine has a row in history."""

import asyncio
from uuid import UUID

from mailwarden.model.outcome import Decision
from mailwarden.serving.spool import Spooled
from mailwarden.smtp.client import NextHop
from tests.integration.held_messages import RAW
from tests.integration.quarantine.quarantine_setup import ALL, QuarantineSetup
from tests.samples.smtp_source import Judge, smtp_source, transaction_for

STEP = 0.002  # seconds


async def test_a_held_message_has_a_row_whenever_the_client_hangs_up(setup: QuarantineSetup) -> None:
    """Cancel later and later until the parts of both tenants are stored, and again until one was cancelled and held."""
    judge = Judge([Decision.QUARANTINE] * 2)
    source = smtp_source(judge, NextHop(("127.0.0.1", 1), 1.0, "guard.example"), setup.writer)
    completed, number, held = 0, 0, set[tuple[UUID, UUID]]()
    async with asyncio.timeout(60.0):
        while completed < 3 or len(held) <= 2 * completed:
            assert await setup.database.probe()  # a cancelled statement may have cost the connection
            work = asyncio.create_task(source.take(transaction_for([setup.north, setup.south]), Spooled.of(RAW)))
            await asyncio.wait([work], timeout=number * STEP)
            work.cancel()
            await asyncio.sleep(0)
            work.cancel()  # at the end of the stream, and again when the connection is lost
            await asyncio.wait([work])
            completed, number = (completed, number + 1) if work.cancelled() else (completed + 1, 0)
            held = {(message.tenant, message.ggrid) for message in await setup.store.page(ALL, limit=1_000)}
    assert held <= {(each.tenant, each.ggrid) for each in judge.kept}
