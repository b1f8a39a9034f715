"""Streaming and adding entries over the List API, compared with direct PostgreSQL statements."""

import argparse
import asyncio
import json
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Iterator
from pathlib import Path
from subprocess import DEVNULL

import asyncpg
import uvloop

from mailwarden.lists.store import ADD
from mailwarden.serving.tls import client_context
from workshop.bench.cpu import Processes, cpu_seconds
from workshop.rig.engines import Engines, start_engines
from workshop.rig.product import Product, start_product

SMALL, LARGE = "sender-block", "url-block"
TEN_THOUSAND = "sender-allow"
CALLS = 30
COLUMNS = "entry, comment, created, created_by, updated, updated_by, expires, hits, last_hit"

_FILL = """
BEGIN;
SELECT set_config('mailwarden.scope', 'all', true);
INSERT INTO lists (tenant, name, entries) VALUES (NULL, '{name}', {count});
INSERT INTO list_entries (list_id, entry, comment, created, created_by, updated, updated_by)
SELECT (SELECT list_id FROM lists WHERE tenant IS NULL AND name = '{name}'),
       'h' || lpad(n::text, 9, '0') || '.bench.example', '"from the feed of ' || n % 1000 || '"',
       '2026-11-15T03:20:00.123Z', '"key:bench"', '2026-11-15T03:20:00.123Z', '"key:bench"'
FROM generate_series(1, {count}) AS n;
COMMIT;
"""
# The maximum size of a list is a little above its entries, so that adding has room.
_MAKE_ROOM = """
DELETE FROM list_entries WHERE list_id = (SELECT list_id FROM lists WHERE tenant IS NULL AND name = '{name}')
    AND entry >= (SELECT entry FROM list_entries JOIN lists USING (list_id) WHERE name = '{name}'
                  ORDER BY entry DESC OFFSET {room} LIMIT 1);
UPDATE lists SET entries = entries - {room} - 1 WHERE tenant IS NULL AND name = '{name}';
"""
ROOM = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="Example: python -m workshop.bench.lists --large 2000000"
    )
    parser.add_argument("--small", type=int, default=1_000_000, help="entries of the smaller list (%(default)s)")
    parser.add_argument("--large", type=int, default=10_000_000, help="entries of the larger list (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each kind (%(default)s)")
    arguments = parser.parse_args()
    if min(arguments.small, arguments.large) < 2 * ROOM:
        parser.error(f"both lists need at least {2 * ROOM:,} entries: some are taken out to make room for adding")
    with tempfile.TemporaryDirectory() as folder, start_engines() as engines:
        database = engines.postgresql.create_database("bench")
        with start_product(Path(folder), engines, database, abby={"listsRateLimit": 1_000_000}) as product:
            key = make_key(product, database)
            for name, count in ((TEN_THOUSAND, 10_000), (SMALL, arguments.small), (LARGE, arguments.large)):
                say(f"filling {name} with {count:,} entries")
                subprocess.run([*psql(engines), _FILL.format(name=name, count=count)], check=True, stdout=DEVNULL)
            subprocess.run([*psql(engines), "VACUUM ANALYZE list_entries"], check=True, stdout=DEVNULL)
            small = compare_streams(engines, product, key, SMALL, arguments.rounds)
            before = memory_of(product.abby.pid, reset=True)
            large = compare_streams(engines, product, key, LARGE, max(1, arguments.rounds - 1))
            grown = max(0.0, memory_of(product.abby.pid) - before)
            for name in (SMALL, LARGE):
                subprocess.run([*psql(engines), _MAKE_ROOM.format(name=name, room=ROOM)], check=True, stdout=DEVNULL)
            ratio, growth = uvloop.run(compare_adds(engines, product, database, key, arguments.rounds))
            say(f"adding 500 to {arguments.large - ROOM:,} takes {growth:.2f} of adding them to 10,000")
            say(f"lists stream 1M {small:.2f} 10M {large:.2f} add {ratio:.2f} memory {grown:.0f} MiB")


def psql(engines: Engines) -> list[str]:
    """Return the command that runs a statement as the superuser, who bypasses row-level security."""
    options = ["-XqAt", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", str(engines.postgresql.port)]
    return ["psql", *options, "-U", "postgres", "-d", "bench", "-c"]


def make_key(product: Product, database: str) -> str:
    command = [sys.executable, "-m", "mailwarden", "keys", "create", "bench", "--global", "-o", "json"]
    command += ["--scope", "lists:read", "--scope", "lists:write", "--config", str(product.abby.folder)]
    command += ["--database-url", database]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return str(json.loads(done.stdout)["key"])


def compare_streams(engines: Engines, product: Product, key: str, name: str, rounds: int) -> float:
    """Return the API's streaming speed of a list as a fraction of a direct ordered COPY of its columns."""
    ratios = []
    query = f"SELECT {COLUMNS} FROM list_entries JOIN lists USING (list_id) WHERE name = '{name}' ORDER BY entry"
    bare = [*psql(engines), f"COPY ({query}) TO STDOUT"]
    ours = ["curl", "-sS", "--cacert", str(product.ca), "-H", f"Authorization: apikey {key}"]
    ours += ["-H", "Content-Type: application/json", "-d", json.dumps({"listName": name})]
    ours += [f"{product.url}/api/public/lists/v1/listEntries"]
    for turn in range(rounds):
        expected, bare_seconds = count_lines(bare)
        lines, seconds = count_lines(ours)
        if lines != expected:
            raise SystemExit(f"{name}: {lines:,} lines came over the API, {expected:,} from PostgreSQL")
        ratios.append(bare_seconds / seconds)
        say(f"stream {name} round {turn + 1}: {lines:,} lines, bare {bare_seconds:.2f} s, API {seconds:.2f} s")
    return statistics.median(ratios)


def count_lines(command: list[str]) -> tuple[int, float]:
    began = time.perf_counter()
    source = subprocess.Popen(command, stdout=subprocess.PIPE)
    counted = subprocess.run(["wc", "-l"], check=True, stdin=source.stdout, capture_output=True)
    if source.wait() != 0:
        raise SystemExit(f"{command[0]} failed")
    return int(counted.stdout), time.perf_counter() - began


async def compare_adds(engines: Engines, product: Product, database: str, key: str, rounds: int) -> tuple[float, float]:
    """Return the speed of addEntries compared with the direct upsert, and the extra cost in the large list."""
    connection = await asyncpg.connect(database)
    await connection.execute("SELECT set_config('mailwarden.scope', 'all', false)")
    ids = {row["name"]: row["list_id"] for row in await connection.fetch("SELECT name, list_id FROM lists")}
    caller = ApiCaller(product.abby.port, client_context(product.ca), key)
    processes = Processes(
        {"client": os.getpid(), "abby": product.abby.pid, "guard": product.guards[0].pid,
         "postgresql": engines.postgresql.pid}, {}
    )  # fmt: skip
    fresh = fresh_entries()
    ratios: list[float] = []
    costs: dict[str, list[float]] = {TEN_THOUSAND: [], LARGE: []}
    try:
        for turn in range(rounds):
            bare, bare_cpu = await with_cpu(timed_bare(connection, ids[SMALL], fresh), processes)
            ours, our_cpu = await with_cpu(timed_adds(caller, SMALL, fresh), processes)
            ratios.append(bare / ours)
            for name, times in costs.items():
                times.append(await timed_adds(caller, name, fresh))
            say(f"add round {turn + 1}: bare {bare * 1000:.1f} ms a call, API {ours * 1000:.1f} ms a call")
            say(f"  CPU ms a call, bare: {bare_cpu}; API: {our_cpu}")
    finally:
        caller.close()
        await connection.close()
    return statistics.median(ratios), statistics.median(costs[LARGE]) / statistics.median(costs[TEN_THOUSAND])


async def with_cpu(calls: Awaitable[float], processes: Processes) -> tuple[float, str]:
    """Return the duration of a call, and the processor time of each process for one."""
    before = cpu_seconds(processes)
    duration = await calls
    used = {name: (seconds - before[name]) * 1000 / CALLS for name, seconds in cpu_seconds(processes).items()}
    return duration, ", ".join(f"{name} {milliseconds:.1f}" for name, milliseconds in used.items())


def fresh_entries() -> Iterator[list[str]]:
    """Yield 500 new names at a time, spread over the whole range of keys."""
    number = 0
    while True:
        batch = [f"h{(n * 7_919_993) % 1_000_000_007:09d}x{n}.bench.example" for n in range(number, number + 500)]
        yield batch
        number += 500


async def timed_bare(connection: asyncpg.Connection, list_id: int, fresh: Iterator[list[str]]) -> float:
    """Send the store's statement without anything around it."""
    times = []
    for _ in range(CALLS):
        entries = sorted(next(fresh))
        began = time.perf_counter()
        await connection.execute("BEGIN; SET LOCAL mailwarden.scope = 'global'")
        await connection.fetchrow(
            ADD, list_id, entries, ['"bench"'] * len(entries), [None] * len(entries),
            "2026-11-15T03:20:00.123Z", '"key:bench"', "bench", None, SMALL, None, "", "add",
        )  # fmt: skip
        await connection.execute(f"SELECT count_entries({list_id}, {len(entries)}, 1000000); COMMIT")
        times.append(time.perf_counter() - began)
    return statistics.median(times)


async def timed_adds(caller: "ApiCaller", name: str, fresh: Iterator[list[str]]) -> float:
    times = []
    for _ in range(CALLS):
        body = {"listName": name, "entries": [{"entry": entry, "comment": "bench"} for entry in next(fresh)]}
        raw = json.dumps(body).encode()
        began = time.perf_counter()
        status, answer = await caller.post("addEntries", raw)
        times.append(time.perf_counter() - began)
        if status != 200 or json.loads(answer)["modifiedEntries"] != 500:
            raise SystemExit(f"addEntries answered {status}: {answer[:200]!r}")
    return statistics.median(times)


class ApiCaller:
    """Makes one call after the other over one TLS connection to abby."""

    def __init__(self, port: int, context: ssl.SSLContext, key: str) -> None:
        self._port = port
        self._context = context
        self._key = key
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, operation: str, body: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._context)
        reader, writer = self._streams
        head = f"POST /api/public/lists/v1/{operation} HTTP/1.1\r\nHost: abby\r\nAuthorization: apikey {self._key}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        return int(answer[9:12]), await reader.readexactly(length)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()


def memory_of(pid: int, *, reset: bool = False) -> float:
    """Return the peak memory of a process since the last reset, in MiB."""
    if reset:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("PGCONNECT_TIMEOUT", "5")
    main()
