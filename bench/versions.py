"""`make bench-versions`: the CPU of a worker's steps for a message, beside that of another commit.

Each version runs in its own process on the same core. They take turns with the same twenty messages, all different from
those before, so a change of the machine's speed affects both. Prints the median ratio of the turns for each size, with
a 95 % interval. Text recognition in pictures is not counted: few messages need it, and it costs more than all other
steps together (`make bench-profile` prints it). The keys of campaigns are no analyzer, and have their own figure.
"""

import argparse
import importlib
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from bench.messages import read_messages
from bench.variation import Variation
from mailwarden.analysis.pipeline.worker_steps import Job, examine

SIZES = ("5k", "50k")
TURN = 20  # messages
WARM_UP = 5  # turns
RUN = Path("run/versions")
# Counted apart, where a version has them: a module, and the function that does the work.
TEXT_RECOGNITION = ("mailwarden.analysis.picture_text", "recognize_texts")
CAMPAIGN_KEYS = ("mailwarden.analysis.pipeline.worker_steps", "find_similarity")


class Apart:
    """Measures the CPU of one function of a version, to count it apart."""

    def __init__(self, module: str, function: str) -> None:
        self.seconds = 0.0
        try:
            place = importlib.import_module(module)
        except ModuleNotFoundError:
            return
        if work := getattr(place, function, None):
            setattr(place, function, self._measure(work))

    def _measure(self, work: Callable[..., object]) -> Callable[..., object]:
        def measured(*given: object) -> object:
            began = time.process_time()
            try:
                result = work(*given)
                return list(result) if isinstance(result, Iterator) else result
            finally:
                self.seconds += time.process_time() - began

        return measured


def serve(messages: Path | None) -> None:
    """For each size on standard input, examine the next messages; print the microseconds of steps and campaign keys."""
    variations = {size: Variation(found) for size, found in read_messages(messages).items()}
    recognition, keys = Apart(*TEXT_RECOGNITION), Apart(*CAMPAIGN_KEYS)
    for line in sys.stdin:
        turn = variations[line.strip()].take(TURN)
        recognition.seconds = keys.seconds = 0.0
        began = time.process_time()
        for message in turn:
            for _ in examine(Job(message)):
                pass
        used = time.process_time() - began - recognition.seconds - keys.seconds
        print(f"{used / TURN * 1e6:.0f} {keys.seconds / TURN * 1e6:.0f}", flush=True)


class Used(NamedTuple):
    """Microseconds of CPU a message."""

    steps: float
    campaign_keys: float


class Version:
    """A process with the worker's steps of one checkout."""

    def __init__(self, source: Path, core: int, messages: Path | None) -> None:
        given = ["--messages", str(messages.resolve())] if messages else []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.versions", "--serve", *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(source)},
        )
        os.sched_setaffinity(self._process.pid, {core})

    def measure(self, size: str) -> Used:
        """Return the CPU a message in the next turn."""
        print(size, file=_opened(self._process.stdin), flush=True)
        line = _opened(self._process.stdout).readline()
        if not line:
            raise SystemExit("a version ended: its error stands above")
        return Used(*map(float, line.split()))

    def end(self) -> None:
        _opened(self._process.stdin).close()
        self._process.wait(timeout=30)


def _opened(stream: IO[str] | None) -> IO[str]:
    assert stream is not None
    return stream


def compare(base: Version, present: Version, size: str, turns: int) -> tuple[list[Used], list[Used]]:
    """Return the microseconds of both versions, turn by turn; the first of a turn alternates."""
    for _ in range(WARM_UP):
        base.measure(size), present.measure(size)
    before: list[Used] = []
    after: list[Used] = []
    for number in range(turns):
        order = (base, present) if number % 2 else (present, base)
        for version in order:
            (before if version is base else after).append(version.measure(size))
    return before, after


def interval(ratios: Sequence[float], resamples: int = 2_000) -> tuple[float, float]:
    """Return a 95 % interval of the median, by resampling the turns."""
    dice = random.Random(1)
    medians = sorted(statistics.median(dice.choices(ratios, k=len(ratios))) for _ in range(resamples))
    return medians[int(0.025 * resamples)], medians[int(0.975 * resamples)]


def print_comparison(size: str, before: Sequence[Used], after: Sequence[Used]) -> None:
    ratios = [now.steps / then.steps for now, then in zip(after, before, strict=True)]
    shares = [now.campaign_keys / then.steps for now, then in zip(after, before, strict=True)]
    low, high = interval(ratios)
    print(
        f"{size:>4}: CPU a message {statistics.median(each.steps for each in before) / 1000:.2f} ms before,"
        f" {statistics.median(each.steps for each in after) / 1000:.2f} ms now,"
        f" ratio {statistics.median(ratios):.2f} ({low:.2f} to {high:.2f}), {len(ratios)} turns of {TURN} messages;"
        f" campaign keys {statistics.median(shares):+.1%}"
    )


def main() -> None:
    arguments = read_arguments()
    if arguments.serve:
        serve(arguments.messages)
        return
    RUN.mkdir(parents=True, exist_ok=True)
    checkout = (RUN / f"checkout-{os.getpid()}").resolve()
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(checkout), arguments.base], check=True)
    try:
        sources = (checkout / "src", Path("src").resolve())
        for source in sources:
            _compile(source)
        core = max(os.sched_getaffinity(0))
        versions = [Version(source, core, arguments.messages) for source in sources]
        for size in SIZES:
            print_comparison(size, *compare(versions[0], versions[1], size, arguments.turns))
        for version in versions:
            version.end()
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(checkout)], check=True)


def _compile(source: Path) -> None:
    """Compile the phrases of a version: without them it would search more slowly."""
    command = [sys.executable, "-m", "mailwarden", "compile"]
    subprocess.run(command, check=True, cwd=source.parent, env=os.environ | {"PYTHONPATH": str(source)})


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.versions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Example: python -m bench.versions --base v1.0.0 --messages FOLDER",
    )
    parser.add_argument("--base", default="HEAD", help="commit to compare with (default: %(default)s)")
    parser.add_argument("--messages", type=Path, help="folder with 5k_*.eml and 50k_*.eml (default: made here)")
    parser.add_argument("--turns", type=int, default=30, help="turns of each size (default: %(default)s)")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
