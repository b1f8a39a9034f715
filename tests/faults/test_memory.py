"""Eight uploads of 50 MiB at once: what abby and guard hold meanwhile, and what they leave behind."""

import asyncio
import random

import pytest

from tests.faults.conftest import Note, Start
from tests.faults.invariants import check_nothing_spooled, peak_memory
from tests.faults.load import caller_of
from workshop.rig.samples import plain_message
from workshop.rig.watcher import tree

pytestmark = pytest.mark.slow

UPLOADS = 8
SIZE = 52_428_800 - 1_024  # Leaves room for the envelope and the frame of the upload.
ABBY_UPLOAD_MEBIBYTES = 8  # for each upload: at most 1 MiB before it is spooled, and the buffers of two TLS connections
GUARD_MEBIBYTES = 1_024


def large_message() -> bytes:
    """Make a message whose attachment fills it up to the limit."""
    head = plain_message().partition(b"Content-Type")[0]
    opening = (
        b"Content-Type: multipart/mixed; boundary=large\r\n\r\n"
        b"--large\r\nContent-Type: text/plain\r\n\r\nSee inside.\r\n"
        b"--large\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: base64\r\n"
        b'Content-Disposition: attachment; filename="figures.bin"\r\n\r\n'
    )
    closing = b"--large--\r\n"
    line = bytes(random.Random(7).choices(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", k=76))
    room = SIZE - len(head) - len(opening) - len(closing)
    return head + opening + (line + b"\r\n") * (room // 78) + closing


@pytest.mark.long
@pytest.mark.contract("3 size")
async def test_eight_uploads_of_50_mib_at_once_are_held_in_little_memory(start_own_product: Start, note: Note) -> None:
    # Time is not what is measured here: on two busy cores eight such messages take their time.
    product = start_own_product(
        {
            "engines": {"clamav": {"timeout": 80_000}, "rspamd": {"timeout": 80_000}},
            "workers": {"structureTimeout": 60_000, "parseTimeout": 60_000, "analyzerTimeout": 60_000},
        }
    )
    message = large_message()
    assert SIZE - 200 < len(message) <= SIZE
    async with caller_of(product) as caller:  # What abby loads for its first message is no part of an upload.
        assert (await caller.submit(plain_message())).status == 200
    resting = peak_memory(product.abby.pid)
    callers = [caller_of(product, patience=120.0) for _ in range(UPLOADS)]
    answers = await asyncio.gather(*(caller.submit(message) for caller in callers))
    for caller in callers:
        caller.close()
    abby = peak_memory(product.abby.pid)
    processes = [peak_memory(pid) for pid in tree(product.guards[0].pid)]
    note(
        f"{UPLOADS} uploads of 50 MiB at once: abby {abby:.0f} MiB at most, {resting:.0f} before, "
        f"guard {processes[0]:.0f} and its workers {' + '.join(f'{size:.0f}' for size in processes[1:])} MiB"
    )
    assert [answer.status for answer in answers] == [200] * UPLOADS, [str(answer) for answer in answers]
    assert {answer.record["verdict"] for answer in answers} == {"clean"}, [str(answer) for answer in answers]
    assert abby - resting < UPLOADS * ABBY_UPLOAD_MEBIBYTES
    assert sum(processes) < GUARD_MEBIBYTES
    await check_nothing_spooled(product)


@pytest.mark.contract("6 spool")
async def test_uploads_that_break_off_leave_no_spool_file(start_own_product: Start) -> None:
    product = start_own_product()
    message = large_message()[: 8 * 1024 * 1024]
    for seconds in (0.02, 0.05, 0.1, 0.2):
        callers = [caller_of(product, patience=120.0) for _ in range(4)]
        calls = [asyncio.create_task(caller.submit(message)) for caller in callers]
        await asyncio.sleep(seconds)
        for call in calls:
            call.cancel()  # The caller closes the connection in the middle of whatever is under way.
        await asyncio.gather(*calls, return_exceptions=True)
    async with caller_of(product) as caller:
        assert (await caller.submit(plain_message())).record["verdict"] == "clean"
    await check_nothing_spooled(product)
