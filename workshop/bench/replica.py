"""Measures guard's replica: matching one message's candidates against millions of global entries and 100 of a tenant.

`python -m workshop.bench.replica --entries 10000000` builds the file as a full copy, changes it like the feed, looks up
360 keys per message (six lists, 60 candidates each). Most of them are in no list, as in real mail.
"""

import argparse
import hashlib
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

from mailwarden.lists.replica.file import ReplicaFolder
from mailwarden.lists.replica.matcher import Replica
from mailwarden.lists.replica.writer import EntryRow, ListChange, ListRow, Position, ReplicaWriter, WholeCopy

TENANT = UUID("01890000-0000-7000-8000-000000000001")
CANDIDATES = 60
TENANT_ENTRIES = 100
_CHUNK = 20_000
_COMMENTS = tuple(f'"feed {number}"' for number in range(50))


def _sender(number: int) -> str:
    return f"news{number:08d}@mail{number % 9_973}.sender.example"


def _url(number: int) -> str:
    return f"h{number:08d}.bad{number % 997}.example/login/{number % 89}"


def _hash(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def _ip(number: int) -> str:
    return f"{11 + number // 65_536 % 200}.{number // 256 % 256}.{number % 256}.{number // 13_107_200}"


# List, the function that makes its entries, and its percentage of all global entries; six lists are looked up.
LISTS: tuple[tuple[str, Callable[[int], str], int], ...] = (
    ("sender-block", _sender, 9),
    ("sender-allow", _sender, 1),
    ("ip-block", _ip, 9),
    ("url-block", _url, 40),
    ("url-allow", _url, 1),
    ("file-hash-block", _hash, 40),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=1_000_000, help="global entries (default: %(default)s)")
    parser.add_argument("--messages", type=int, default=5_000, help="messages to match (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="where to build the replica (default: a temporary folder)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        measure(Path(name), arguments.entries, arguments.messages)


def measure(folder: Path, entries: int, messages: int) -> None:
    sizes = {name: entries * share // 100 for name, _, share in LISTS}
    began = time.perf_counter()
    build(folder, sizes)
    seconds = time.perf_counter() - began
    files = {path.suffix: path.stat().st_size for path in folder.glob("replica-*")}
    print(f"copy      {entries:,} entries in {seconds:.1f} s, {entries / seconds:,.0f} a second")
    print(f"disk      {files['.sqlite'] / entries:.1f} B an entry, and {files['.bits'] / entries:.1f} B of bits")
    began = time.perf_counter()
    change(folder, 50_000)
    print(f"changes   {50_000 / (time.perf_counter() - began):,.0f} entries a second")

    before = memory_mib()
    replica = Replica(folder)
    assert replica.loaded
    generator = random.Random(7)
    wanted = [candidates(generator, sizes) for _ in range(messages)]
    laden = memory_mib()
    for filtered in (True, False):
        if not filtered:
            replica._view.filter = None  # as after a reboot, before the bit filter was rebuilt
        walls, cpu = [], []
        for each in wanted:
            cpu_began, wall_began = time.thread_time(), time.perf_counter()
            found = replica.match(TENANT, each)
            walls.append(time.perf_counter() - wall_began)
            cpu.append(time.thread_time() - cpu_began)
            assert len(found) == 2
        p50, p99 = (statistics.quantiles(walls, n=100)[place] * 1e3 for place in (49, 98))
        cpu50, cpu99 = (statistics.quantiles(cpu, n=100)[place] * 1e3 for place in (49, 98))
        print(
            f"match     {'with' if filtered else 'without'} bits: p50 {p50:.3f} p99 {p99:.3f} ms"
            f" (CPU p50 {cpu50:.3f} p99 {cpu99:.3f} ms), {len(LISTS) * CANDIDATES} keys, 2 of them match"
        )
        own, mapped = memory_mib()
        print(
            f"memory    {own - laden[0]:.1f} MiB of this process alone, {mapped - before[1]:.0f} MiB mapped and shared"
        )
    replica.close()


def build(folder: Path, sizes: dict[str, int]) -> None:
    place = ReplicaFolder(folder)
    place.prepare()
    rows = [ListRow(number, None, name, sizes[name]) for number, (name, _, _) in enumerate(LISTS, 1)]
    rows.append(ListRow(len(rows) + 1, TENANT, "sender-block", TENANT_ENTRIES))
    copy = WholeCopy(place, rows)
    for row, (_, make, _) in zip(rows, LISTS, strict=False):
        for chunk in chunks(row, make):
            copy.take(chunk)
    for chunk in chunks(rows[-1], lambda number: f"t{number}@tenant.example"):
        copy.take(chunk)
    copy.finish(Position("bench", "1:1:", 0.0))


def chunks(row: ListRow, make: Callable[[int], str]) -> Iterator[bytes]:
    entries = sorted(map(make, range(row.entries)))
    for start in range(0, row.entries, _CHUNK):
        lines = (
            f"{row.list_id}\x01{entry}\x01\x01{_COMMENTS[number % 50]}\n"
            for number, entry in enumerate(entries[start : start + _CHUNK])
        )
        yield "".join(lines).encode()


def change(folder: Path, count: int) -> None:
    writer = ReplicaWriter(folder)
    assert writer.take()
    assert writer.position() is not None
    row = ListRow(4, None, "url-block", 1)
    for start in range(0, count, 500):
        made = [EntryRow(f"new{start + each}.example/a", None, '"feed 1"') for each in range(250)]
        writer.apply([ListChange(4, row, made, [each.entry for each in made[:0]])])
        writer.apply([ListChange(4, row, (), [each.entry for each in made])])
    writer.close()


def candidates(generator: random.Random, sizes: dict[str, int]) -> dict[str, list[str]]:
    """Return the candidates of one message: one global sender and one of the tenant match, all others do not."""
    wanted: dict[str, list[str]] = {}
    for name, make, _ in LISTS:
        beyond = [sizes[name] + generator.randrange(100_000_000) for _ in range(CANDIDATES)]
        wanted[name] = [f"x{make(number)}" if name != "file-hash-block" else _hash(-number) for number in beyond]
    wanted["sender-block"][0] = _sender(generator.randrange(sizes["sender-block"]))
    wanted["sender-block"][1] = f"t{generator.randrange(TENANT_ENTRIES)}@tenant.example"
    return wanted


def memory_mib() -> tuple[float, float]:
    """Return the private memory of this process, and its mapped files, which all processes share."""
    lines = Path("/proc/self/smaps_rollup").read_text("ascii").splitlines()
    found = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines[1:]}
    return found["Anonymous"], found["Rss"] - found["Anonymous"]


if __name__ == "__main__":
    main()
