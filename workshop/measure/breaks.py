"""`make check-long ONLY=breaks`: breaks the product, one break at a time; does the named test notice?

Each break of breaks.toml replaces one piece of text in a copy of the checkout. Its tests must pass there before, and
fail with it. A break whose text is gone, or whose tests fail anyway, is an error of breaks.toml. Prints a line for each
break, and at the end `breaks N caught N`; exits with 1 if one was not caught.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

LIST = Path(__file__).with_name("breaks.toml")
PATIENCE = 300.0  # seconds for the tests of one break
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "run", "dist", ".*_cache", ".hypothesis", "__pycache__", "node_modules"
)
FAILED = 1  # pytest's exit code for tests that failed


class Break(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One replacement in one file, and the tests that must fail with it."""

    promise: str
    file: str
    old: str
    new: str
    tests: list[str]


class Breaks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of breaks.toml."""

    breaks: list[Break]


class Outcome(msgspec.Struct, frozen=True):
    """The result of the tests of one break; `caught` only if they passed without it and failed with it."""

    caught: bool
    text: str


def main(words: Sequence[str] | None = None) -> int:
    """Apply each break in a copy of the checkout and run its tests."""
    parser = argparse.ArgumentParser(
        prog="python -m workshop.measure.breaks",
        description=__doc__,
        epilog="example: python -m workshop.measure.breaks --only quarantine",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="only breaks whose promise or file has this text")
    chosen = [each for each in read(LIST) if parser.parse_args(words).only in f"{each.promise} {each.file}"]
    if not chosen:
        parser.error(f"no break of {LIST.name} has this text")
    caught = 0
    with tempfile.TemporaryDirectory(prefix="mailwarden-breaks-") as folder:
        Path(folder).chmod(0o755)  # the sandbox test runs workers as another user, who must read the copy
        copy = Path(folder, "checkout")
        shutil.copytree(Path.cwd(), copy, ignore=LEFT_OUT, symlinks=True)
        for number, each in enumerate(chosen, 1):
            began = time.monotonic()
            outcome = try_break(copy, each)
            caught += outcome.caught
            seconds = time.monotonic() - began
            print(
                f"{number:3}/{len(chosen)} {outcome.text:12} {seconds:4.0f} s  {each.promise} ({each.file})", flush=True
            )
    print(f"breaks {len(chosen)} caught {caught}")
    return 0 if caught == len(chosen) else 1


def read(path: Path) -> list[Break]:
    return msgspec.convert(tomllib.loads(path.read_text("utf-8")), Breaks).breaks


def try_break(checkout: Path, planned: Break) -> Outcome:
    """Run the tests of a break without it and with it."""
    before = run_tests(checkout, planned.tests)
    if before != 0:
        return Outcome(caught=False, text="tests fail" if before == FAILED else "no result")
    try:
        with broken(checkout, planned):
            after = run_tests(checkout, planned.tests)
    except ValueError as error:
        return Outcome(caught=False, text=str(error))
    return Outcome(caught=after == FAILED, text={FAILED: "caught", 0: "NOT CAUGHT"}.get(after, "no result"))


@contextmanager
def broken(checkout: Path, planned: Break) -> Iterator[None]:
    """Replace the one place that has the old text; put it back at the end."""
    path = checkout / planned.file
    whole = path.read_text("utf-8") if path.exists() else ""
    if whole.count(planned.old) != 1:
        raise ValueError(f"{whole.count(planned.old)} places")
    path.write_text(whole.replace(planned.old, planned.new), "utf-8")
    try:
        yield
    finally:
        path.write_text(whole, "utf-8")


def run_tests(checkout: Path, tests: Sequence[str]) -> int:
    """Return pytest's exit code, or 2 if the tests take too long or pytest ran none."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--timeout", "120", *tests]
    environment = {"PATH": _path(), "PYTHONPATH": f"{checkout}/src:{checkout}", "HOME": str(Path.home())}
    try:
        done = subprocess.run(
            command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return 2
    # A break that keeps a fixture from starting is an error of pytest's, and no test that noticed.
    noticed = re.search(r"\d+ (?:failed|passed)", done.stdout)
    return done.returncode if noticed else 2


def _path() -> str:
    return f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


if __name__ == "__main__":
    raise SystemExit(main())
