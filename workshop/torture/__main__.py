"""`make torture`: sends input that breaks mail scanners through the real product."""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from workshop.rig.engines import start_engines
from workshop.rig.product import Product, start_product
from workshop.torture.harm import ATTACKS, PHASES, measure_harm
from workshop.torture.results import Results, table
from workshop.torture.runs import ABBY, GUARD, RUNS

HARM = "harm"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m workshop.torture",
        description=__doc__,
        epilog="Example: python -m workshop.torture --only bombs --only http",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=[*RUNS, HARM],
        help="run this kind alone; may be given several times (harm: the delay of a harmless message during attacks)",
    )
    parser.add_argument("--phases", type=int, default=PHASES, help="of harm: with and without attacks (%(default)s)")
    options = parser.parse_args()
    kinds = options.only or [*RUNS, HARM]
    print("starting the engines, abby and guard", flush=True)
    with tempfile.TemporaryDirectory() as folder, start_engines() as engines:
        url = engines.postgresql.create_database("torture")
        with start_product(Path(folder), engines, url, guards=[GUARD], abby=ABBY) as product:
            results = asyncio.run(run(product, kinds, options.phases))
    print(results.summary())
    return 1 if results.wrong else 0


async def run(product: Product, kinds: Sequence[str], phases: int) -> Results:
    """Run the kinds in order and print their results."""
    results = Results()
    for kind in kinds:
        began = time.monotonic()
        if kind == HARM:
            for attack in ATTACKS:
                print(f"{await measure_harm(product, attack, phases=phases)} (goal: at most 2)", flush=True)
            continue
        await RUNS[kind](product, results)
        print(f"{kind}: {len(results.of(kind))} cases in {time.monotonic() - began:.0f} s", flush=True)
    print(table(results, list(RUNS)))
    return results


if __name__ == "__main__":
    sys.exit(main())
