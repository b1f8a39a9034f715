"""How a guard behaves that tests stand in for: it finishes, or it fails after some reports."""

import asyncio

from mailwarden.model.evidence import Finding, Report, Status
from tests.samples.finished import finished_request

FIRST = Report("structure", True, Status.FINISHED, 0.5, (Finding("structure.ambiguous"),))


async def finish(scan, observe):
    observe(FIRST)
    return finished_request(ggrid=scan.ggrid)


def fail(error, *reports):
    async def behave(scan, observe):
        for report in reports:
            observe(report)
        await asyncio.sleep(0)
        raise error

    return behave
