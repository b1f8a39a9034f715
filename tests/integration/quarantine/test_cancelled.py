"""A client that hangs up while its message is stored: whatever is in quarantine has a row in history."""

import asyncio
from itertools import count

from mailwarden.model.outcome import Decision
from mailwarden.serving.spool import Spooled
from mailwarden.smtp.client import NextHop
from tests.integration.held_messages import RAW
from tests.integration.quarantine.quarantine_setup import ALL, QuarantineSetup
from tests.samples.smtp_source import Judge, smtp_source, transaction_for

STEP = 0.002  # seconds


async def test_a_held_message_has_a_row_whenever_the_client_hangs_up(setup: QuarantineSetup) -> None:
    """Cancel later and later, until the parts of both tenants are stored before the client hangs up."""
    judge = Judge([Decision.QUARANTINE] * 2)
    source = smtp_source(judge, NextHop(("127.0.0.1", 1), 1.0, "guard.example"), setup.writer)
    completed = 0
    async with asyncio.timeout(60.0):
        for number in count():
            assert await setup.database.probe()  # a cancelled statement may have cost the connection
            work = asyncio.create_task(source.take(transaction_for([setup.north, setup.south]), Spooled.of(RAW)))
            await asyncio.wait([work], timeout=number * STEP)
            work.cancel()
            await asyncio.sleep(0)
            work.cancel()  # at the end of the stream, and again when the connection is lost
            await asyncio.wait([work])
            completed += not work.cancelled()
            if completed == 3:
                break
    held = {(each.tenant, each.ggrid) for each in await setup.store.page(ALL, limit=1_000)}
    assert len(held) > 2 * completed, "no cancelled message was held"
    assert held <= {(each.tenant, each.ggrid) for each in judge.kept}
