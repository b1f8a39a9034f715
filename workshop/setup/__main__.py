"""Install what `make run` needs, or with --develop what `make check` needs as well; services stay disabled."""

import argparse
import re
import sys
import time
from pathlib import Path

from workshop.setup import environment, host, packages
from workshop.setup.packages import Plan, SetupError

RUN = environment.ROOT / "run"
LOG = RUN / "setup.log"
PYTHON_LOG = RUN / "setup-python.log"
FIRST_LOG = RUN / "setup-first.log"  # of python.sh
NEXT = {"setup": "make run", "develop": "make test", "long": "make check-long"}
LOCKS = {"setup": ["setup"], "develop": ["develop", "clickhouse"], "long": []}
# MB a second of an ordinary connection, and what one core unpacks.
FETCH_SPEED = 5.0
UNPACK_SPEED = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m workshop.setup", description=__doc__)
    parser.add_argument("kind", choices=sorted(LOCKS))
    parser.add_argument("packages", nargs="+", help="the Debian packages that must be there")
    options = parser.parse_args()
    try:
        _set_up(options.kind, options.packages)
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted. Run the same command again: it goes on where it stopped.", file=sys.stderr)
        return 130
    return 0


def _set_up(kind: str, wanted: list[str]) -> None:
    began = time.monotonic()
    _check_system()
    missing = packages.missing_packages(wanted)
    locks = environment.outdated(LOCKS[kind])
    interrupted = packages.interrupted()
    if not (missing or locks or interrupted):
        _say(f"Everything is installed already. Next: {NEXT[kind]}")
        return
    _check_size()
    RUN.mkdir(exist_ok=True)
    for log in (LOG, PYTHON_LOG):
        log.write_text("")
    planned = _plan(missing)
    _announce(planned, locks)
    if missing or interrupted:
        packages.as_root()
    # Both must be complete before `finish`: Mailwarden loads libraries of Debian.
    beside = locks and environment.pip_is_there()
    wait = environment.create_beside(locks, PYTHON_LOG, _say) if beside else None
    if missing or interrupted:
        packages.install(planned, LOG, _say)
    if wait is not None:
        wait()
    elif locks:
        environment.create(locks, PYTHON_LOG, _say)
    if locks:
        _say("Mailwarden: compiling code and tables")
        environment.finish(PYTHON_LOG)
    fetched = sum(fetched_megabytes(log.read_text("utf-8", "replace")) for log in _logs())
    _say(f"Ready after {_duration(time.monotonic() - began)}, {fetched:.0f} MB fetched. Next: {NEXT[kind]}")
    FIRST_LOG.unlink(missing_ok=True)


def fetched_megabytes(log: str) -> float:
    """Add up what apt and pip wrote about their downloads."""
    sizes = re.findall(r"(?m)^Fetched ([\d.,]+) ([kMG]?B) in|^\s*Downloading \S+ \(([\d.]+) ([kMG]?B)\)", log)
    return sum(
        float((apt or pip).replace(",", "")) * packages.UNITS[of_apt or of_pip] for apt, of_apt, pip, of_pip in sizes
    )


def _logs() -> list[Path]:
    return [path for path in (FIRST_LOG, LOG, PYTHON_LOG) if path.exists()]


def _check_system() -> None:
    path = Path("/etc/os-release")
    if wrong := host.wrong_system(path.read_text("utf-8") if path.exists() else ""):
        raise SetupError(wrong)


def _check_size() -> None:
    error, warning = host.wrong_size(host.cores(), host.memory())
    if error:
        raise SetupError(error)
    if warning:
        _say(f"Warning: {warning}")


def _plan(missing: list[str]) -> Plan:
    if not missing:
        return Plan(())
    if packages.lists_are_old():
        _say("Reading the list of Debian packages, about 15 MB")
        packages.update_lists(LOG)
    return packages.plan(missing)


def _announce(planned: Plan, locks: list[str]) -> None:
    """Print what is installed, its size and about how long it takes; end if there is not enough disk."""
    sizes = [environment.SIZES[name] for name in locks]
    python_fetch, python_disk = sum(fetch for fetch, _ in sizes), sum(disk for _, disk in sizes)
    count = sum(environment.locked_packages(name) for name in locks)
    fetch, disk = planned.fetch + python_fetch, planned.disk + python_disk
    seconds = fetch / FETCH_SPEED + disk / UNPACK_SPEED
    _say("This installs:")
    if planned.missing:
        _say(
            f"  {len(planned.new)} Debian packages: {planned.fetch:.0f} MB to fetch, {planned.disk:.0f} MB on disk,"
            f" for {' '.join(planned.missing)}"
        )
    if locks:
        _say(f"  {count} Python packages in .venv: about {python_fetch} MB to fetch, {python_disk} MB on disk")
    _say(
        f"Together {fetch:.0f} MB to fetch and {disk:.0f} MB on disk, {_duration(seconds)} with 50 Mbit/s."
        " No service is enabled or started."
    )
    needs = {Path("/usr"): planned.disk, Path("/var"): planned.fetch, environment.ROOT: float(python_disk)}
    if wrong := host.too_little_disk(needs):
        raise SetupError(wrong)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.1f} minutes"


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
