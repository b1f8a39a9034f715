"""`make compare BASE=commit`: the answers and the CPU of this checkout and of a commit, side by side.

Both versions run from their own files and virtual environments below run/compare, on the same engines and the same
PostgreSQL server with a database each. They get the same messages by turns over HTTPS, over SMTP and at /checkv2. Two
thirds of the messages have recipients of one or of both of two tenants; entries of lists act on some. The drivers use
only the rig of this checkout and `python -m mailwarden` of each version, so a rename inside of the product does not
matter to them.

An answer is the reply without ids, and verdict, decision, tags and reasons from history. Messages that are answered
differently are sent again, one version after the other, and count only if they differ again: on a busy machine a
deadline may pass in one version alone. Findings that need days of history do not occur, because both databases are new.

CPU is that of the process trees, a turn at a time, one version at a time; the one that goes first alternates. The ratio
is the median of the turns, present to base, with a 95 % interval. A bound holds if the lower end is below it. The
engines are shared: the version that goes first pays for what they cache.

Security: the messages may be hostile; they are sent to local servers, and only their names are printed.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
import uvloop

from workshop.bench.compare.answers import print_differences
from workshop.bench.compare.figures import print_table
from workshop.bench.compare.messages import TENANTS, Message, listed_senders, read_folders, warm_up
from workshop.bench.compare.turns import Comparison, Version
from workshop.bench.compare.ways import Checkv2, Https, NextHop, Smtp, send_all
from workshop.bench.cpu import Processes
from workshop.rig.engines import Engines, start_engines
from workshop.rig.ports import free_port
from workshop.rig.product import Product, install_product
from workshop.rig.versions import install_version, tree_of, working_tree

RUN = Path("run/compare")
TURN = 20  # messages
NAME = "compare"
_SCOPES = ("--scope", "lists:read", "--scope", "lists:write")
_ROW_BYTES = """
SELECT avg(octet_length(record))::int, avg(pg_column_size(record))::int, avg(pg_column_size(history.*))::int
FROM history
"""


def main(words: Sequence[str] | None = None) -> int:
    arguments = _read_arguments(words)
    base, present = tree_of(arguments.base), working_tree()
    print(f"base {arguments.base}, present {'the same files' if base == present else 'this checkout'}", flush=True)
    base_python = install_version(base, RUN / base[:12])
    present_python = install_version(present, RUN / "present")
    messages, records = read_folders(arguments.messages, arguments.sample, arguments.seed)
    print(f"{len(messages)} messages by HTTPS, SMTP and /checkv2, in turns of {arguments.turn}", flush=True)
    with ExitStack() as stack:
        engines = stack.enter_context(start_engines(dns_records=records))
        folder = Path(stack.enter_context(TemporaryDirectory()))
        starts = {"base": base_python, "present": present_python}
        versions = [
            _start(stack, name, folder / name, python, engines, messages, one_process=arguments.one_process)
            for name, python in starts.items()
        ]
        comparison = Comparison(versions[0], versions[1])
        uvloop.run(_compare(comparison, messages, arguments.turn))
        rows = [uvloop.run(_history_row(engines.postgresql.url(name))) for name in starts]
    print_differences(comparison.differences, comparison.answers)
    print_table(comparison.turns, comparison.base.kinds)
    print(f"\na row of history, mean: base {rows[0]}, present {rows[1]}")
    print(
        f"\ncompare: {len(messages)} messages, {len(comparison.differences)} answers differ,"
        f" CPU ratio {comparison.ratios()}"
    )
    return 1 if comparison.differences else 0


async def _compare(comparison: Comparison, messages: Sequence[Message], turn: int) -> None:
    versions = (comparison.base, comparison.present)
    for version in versions:
        for way in version.ways:
            await send_all(way, warm_up())
    await comparison.run(messages, turn)
    for version in versions:
        version.https.close()


async def _history_row(url: str) -> str:
    """Return the bytes of the record of a row: as it was sent, and on disk; and those of the whole row."""
    connection = await asyncpg.connect(url)
    try:
        sent, stored, whole = await connection.fetchrow(_ROW_BYTES)
    finally:
        await connection.close()
    return f"{whole:,} bytes with a record of {stored:,} (sent as {sent:,})"


def _start(
    stack: ExitStack,
    name: str,
    folder: Path,
    python: str,
    engines: Engines,
    messages: Sequence[Message],
    *,
    one_process: bool,
) -> Version:
    """Start one version with a database and a next hop of its own, two tenants, and entries for some senders."""
    next_hop, port, checkv2 = stack.enter_context(NextHop()), free_port(), free_port()
    sources = {
        "smtp": {"listen": {"port": port}, "nextHop": f"127.0.0.1:{next_hop.port}"},
        "rspamdApi": {"listen": {"port": checkv2}, "allowWithoutSecret": True},
    }
    product = install_product(
        folder,
        engines,
        engines.postgresql.create_database(name),
        guards=[{"scanSources": sources}],
        python=python,
        one_process=one_process,
    )
    stack.enter_context(product)
    url, config = engines.postgresql.url(name), str(product.abby.folder)
    for tenant, domain in TENANTS.items():
        _run(python, "tenants", "create", tenant, "--domain", domain, "--config", config, "--database-url", url)
    product.start()
    made = _run(python, "keys", "create", NAME, "--global", "-o", "json", *_SCOPES, "--config", config)
    key = product.folder / "key"
    key.write_text(json.loads(made)["key"])
    for name_of_list, entries in listed_senders(messages).items():
        words = ("--tenant", next(iter(TENANTS)), "--key-file", str(key), "--config", config)
        _run(python, "lists", "add", name_of_list, *entries, *words)
    servers = {"postgresql": engines.postgresql.pid} | {
        server.name: server.pid for server in (engines.rspamd, engines.clamd, engines.redis, engines.dns)
    }
    own = _own_processes(product, one_process=one_process)
    return Version(
        name,
        Https(product),
        Smtp(port, next_hop),
        Checkv2(checkv2),
        Processes(own | servers, {list(own)[-1]: "workers"}),
        frozenset(servers) - {"postgresql"},
    )


def _run(python: str, *words: str) -> str:
    """Run a command of a version; return its output."""
    done = subprocess.run([python, "-m", "mailwarden", *words], check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"mailwarden {' '.join(words[:3])} of {python} failed: {done.stderr.strip()}")
    return done.stdout


def _own_processes(product: Product, *, one_process: bool) -> dict[str, int]:
    if one_process:
        return {"abby with guard": product.abby.pid}
    return {"abby": product.abby.pid, "guard": product.guards[0].pid}


def _read_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m workshop.bench.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Example: python -m workshop.bench.compare --base v1.0.0 --messages FOLDER --sample 1000",
    )
    parser.add_argument("--base", required=True, metavar="COMMIT", help="commit to compare with")
    parser.add_argument(
        "--messages",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="folder of .eml files or labelled corpus; may be repeated (default: 200 messages made here)",
    )
    parser.add_argument("--sample", type=int, metavar="N", help="take at most so many of each folder")
    parser.add_argument("--seed", type=int, default=1, help="chooses the sample and the order (default: %(default)s)")
    parser.add_argument("--turn", type=int, default=TURN, help="messages of a turn (default: %(default)s)")
    parser.add_argument("--one-process", action="store_true", help="abby and guard share a process")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
