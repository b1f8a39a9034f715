"""`make evasion`: payloads in every wrapper and encoding through the real product; none may come back `clean`."""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from workshop.evasion.cases import attacks, chosen, harmless
from workshop.evasion.product import AT_ONCE, GUARD, Outcome, block, scan_all
from workshop.rig.engines import start_engines
from workshop.rig.product import start_product


def main() -> int:
    arguments = _read_arguments()
    print("starting the engines, abby and guard", flush=True)
    with tempfile.TemporaryDirectory() as folder, start_engines() as engines:
        url = engines.postgresql.create_database("evasion")
        with start_product(Path(folder), engines, url, guards=[GUARD]) as product:
            block(product)
            began = time.monotonic()
            cases = chosen(arguments.only) if arguments.only else attacks()
            outcomes = asyncio.run(scan_all(product, cases))
            controls = asyncio.run(scan_all(product, harmless())) if not arguments.only else []
    for line in report(outcomes, controls):
        print(line)
    print(f"{len(outcomes) + len(controls):,} messages in {time.monotonic() - began:.0f} s, {AT_ONCE} at once")
    passed = [outcome for outcome in outcomes if outcome.passed]
    print(f"evasion {len(outcomes)} cases {len(passed)} clean")
    return 1 if passed else 0


def report(outcomes: list[Outcome], controls: list[Outcome]) -> Iterator[str]:
    """Yield a table by group, then every case that came back clean, then the harmless ones that did not."""
    groups: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.case.group, Counter())[outcome.kind] += 1
    kinds = ("clean", "warned", "quarantined", "undecided")
    yield f"{'group':<12}{'cases':>7}" + "".join(f"{kind:>13}" for kind in kinds)
    for group, counts in groups.items():
        yield f"{group:<12}{counts.total():>7}" + "".join(f"{counts[kind]:>13}" for kind in kinds)
    yield from (f"CLEAN {outcome}" for outcome in outcomes if outcome.passed)
    if controls:
        wrong = [outcome for outcome in controls if not outcome.passed]
        yield f"harmless controls: {len(controls) - len(wrong)} of {len(controls)} clean"
        yield from (f"NOT CLEAN {outcome}" for outcome in wrong)


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m workshop.evasion",
        description=__doc__,
        epilog='Example: python -m workshop.evasion --only "^pdf: .*script"',
    )
    parser.add_argument("--only", metavar="PATTERN", help="run the cases whose name this regular expression finds")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
