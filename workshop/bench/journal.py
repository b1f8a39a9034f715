"""Measures the journal: how long a scan waits for its row, rows per second, and the CPU of a row.

Run: python -m workshop.bench.journal [--rows 5000] [--folder FOLDER]
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from mailwarden.journal.journal import Journal
from mailwarden.journal.records import decode, encode
from mailwarden.journal.segments import Limits
from mailwarden.telemetry.metrics import Metrics
from tests.samples.finished import finished_request

SCANS = (1, 20, 200)  # that finish at the same time, again and again


async def measure(folder: Path, scans: int, rows: int) -> str:
    """Append rows from so many scans at once and return a line with the figures."""
    journal = Journal.open(folder, Limits(1 << 34), Metrics())
    journal.start()
    waits: list[float] = []
    request = finished_request()

    async def scan() -> None:
        for _ in range(rows // scans):
            began = time.perf_counter()
            assert await journal.append([request])
            waits.append(time.perf_counter() - began)

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(scan() for _ in range(scans)))
    seconds, used = time.perf_counter() - began, time.process_time() - cpu
    await journal.stop()
    centiles = [each * 1000 for each in statistics.quantiles(waits, n=100)]
    return (
        f"{scans:>3} scans at once: {len(waits) / seconds:7,.0f} rows/s, wait p50 {centiles[49]:.2f} ms, "
        f"p99 {centiles[98]:.2f} ms, CPU {used / len(waits) * 1e6:.0f} us a row"
    )


def cost_of_record(count: int = 2_000) -> str:
    request = finished_request()
    payload = encode(request)
    began = time.process_time()
    for _ in range(count):
        encode(request)
    middle = time.process_time()
    for _ in range(count):
        decode(payload)
    end = time.process_time()
    encoding, decoding = (middle - began) / count * 1e6, (end - middle) / count * 1e6
    return f"a row of {len(payload):,} bytes: encode {encoding:.0f} us, decode {decoding:.0f} us of CPU"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--folder", type=Path, help="folder on the disk to measure (default: a temporary one)")
    options = parser.parse_args()
    print(cost_of_record())
    for scans in SCANS:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            print(asyncio.run(measure(Path(folder) / "journal", scans, options.rows)), flush=True)


if __name__ == "__main__":
    main()
