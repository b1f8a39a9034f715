"""`make check-long ONLY=compatibility`: the tests with every supported version of Debian, Python and the engines.

Example: make check-long ONLY=compatibility ROWS="trixie rspamd4"

Each row is a clean root with the engines of that release, started by the project's own rig. The tests run in a network
namespace of their own, where only loopback exists. Needs root and mmdebstrap.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUN = ROOT / "run" / "compatibility"
SECONDS = 3_600
COMMON = (
    *("python3", "python3-venv", "libseccomp2", "ca-certificates", "git", "procps", "curl"),
    *("postgresql", "rspamd", "clamav-daemon", "clamav", "unbound", "postfix"),
)
FAST = (
    *("-n", "2", "-p", "no:schemathesis", "-m", "not slow"),
    *("tests/unit", "tests/analyzers", "tests/configuration"),
)
# Every place where the version of a server matters: what we read from it, what we store in it, what we send to it.
SERVERS = (
    *("tests/integration/test_rspamd_symbols.py", "tests/integration/user_reports/training", "tests/contracts"),
    *("tests/integration/test_doctor.py", "tests/integration/test_doctor_probes.py"),
    *("tests/integration/test_migrations.py", "tests/integration/test_backup.py"),
    *(
        f"tests/acceptance/test_{name}.py"
        for name in (
            *("submit", "verdicts", "explanations", "engine_failure", "sender_identity", "lists_acting"),
            *("http_sources", "smtp", "smtp_quarantine", "reports"),
        )
    ),
)
# Debian has no Python 3.12. Its wheels can be looked up; its tests cannot be run.
UNAVAILABLE_PYTHON = "3.12"


@dataclass(frozen=True)
class Row:
    """One root: a release of Debian, its packages, and packages from a newer suite."""

    name: str
    suite: str
    packages: tuple[str, ...]
    newer_suite: str = ""
    newer: tuple[str, ...] = ()


OLD = ("libmagic1", "libarchive13", "redis-server")
NEW = ("libmagic1t64", "libarchive13t64", "valkey-server")
ROWS = (
    Row("bookworm", "bookworm", (*COMMON, *OLD)),
    Row("trixie", "trixie", (*COMMON, *NEW)),
    Row("rspamd4", "trixie", (*COMMON, *NEW), newer_suite="sid", newer=("rspamd",)),
)
SHOWN = {
    "Debian": "cat /etc/debian_version",
    "Python": "python3 --version",
    "PostgreSQL": "ls /usr/lib/postgresql",
    "Rspamd": "dpkg-query -Wf '${Version}' rspamd",
    "ClamAV": "dpkg-query -Wf '${Version}' clamav-daemon",
    "Redis or Valkey": "dpkg-query -Wf '${Package} ${Version}\\n' redis-server valkey-server 2>/dev/null | grep ' .'",
    "Postfix": "dpkg-query -Wf '${Version}' postfix",
}


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def inside(root: Path, script: str, log: Path, *, network: bool) -> int:
    """Run a shell script in the root; without network only loopback exists."""
    mounts = 'mount --rbind /proc "$0/proc"; mount --rbind /dev "$0/dev"; mount -t tmpfs tmpfs "$0/tmp"; '
    enter = mounts + 'exec chroot "$0" sh -eu -c "$1"'
    unshare = ["unshare", "--mount"] if network else ["unshare", "--mount", "--net"]
    loopback = "" if network else "ip link set lo up; "
    with log.open("a") as output:
        done = subprocess.run(
            ["timeout", str(SECONDS), *unshare, "sh", "-eu", "-c", loopback + enter, str(root), script],
            check=False, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    return done.returncode


def make_root(row: Row, root: Path, log: Path) -> bool:
    """Create the root with the engines and a virtual environment of this checkout."""
    say(f"{row.name}: a clean root with its engines")
    with log.open("w") as output:
        command = ["packaging/clean-root.sh", row.suite, str(root), *row.packages]
        if subprocess.run(command, check=False, cwd=ROOT, stdout=output, stderr=output).returncode:
            return False
    if row.newer:
        mirror = subprocess.run(["packaging/mirror.sh"], check=True, cwd=ROOT, capture_output=True, text=True).stdout
        (root / "etc/apt/sources.list.d/newer.list").write_text(f"deb {mirror.strip()} {row.newer_suite} main\n")
        pin = f"Package: *\nPin: release n={row.newer_suite}\nPin-Priority: 100\n"
        (root / "etc/apt/preferences.d/newer").write_text(pin)
        # The index of an unreleased suite is valid for a week only, and a mirror may be older.
        install = (
            "export DEBIAN_FRONTEND=noninteractive; apt-get -qq -o Acquire::Check-Valid-Until=false update; "
            f"apt-get -y -qq --no-install-recommends install -t {row.newer_suite} {' '.join(row.newer)}"
        )
        if inside(root, install, log, network=True):
            return False
    say(f"{row.name}: the locked Python packages")
    shutil.copy("/etc/ssl/certs/ca-certificates.crt", root / "etc/ssl/certs/")
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(root / "opt/mailwarden")], check=True)
    prepare = (
        "cd /opt/mailwarden; python3 -m venv .venv; "
        ".venv/bin/pip install -q --require-hashes --no-deps -r requirements/develop.txt; "
        ".venv/bin/pip install -q --no-deps --no-build-isolation --editable .; .venv/bin/mailwarden compile"
    )
    return inside(root, prepare, log, network=True) == 0


def run_tests(row: Row, root: Path, kind: str, selection: tuple[str, ...]) -> tuple[bool, str]:
    """Run tests in the root and return whether they passed, and the summary of pytest."""
    say(f"{row.name}: {kind}")
    log = RUN / f"{row.name}-{kind.replace(' ', '-')}.log"
    log.unlink(missing_ok=True)
    pytest = f".venv/bin/pytest -q -p no:cacheprovider --timeout 600 --reruns 1 {shlex.join(selection)}"
    failed = inside(root, f"cd /opt/mailwarden; {pytest}", log, network=False)
    lines = re.findall(r"(?m)^=*\s*(\d+ (?:passed|failed|error).*?) in [\d.]+s", log.read_text("utf-8", "replace"))
    return failed == 0 and bool(lines), (lines[-1] if lines else "no summary") + (f", see {log}" if failed else "")


def versions(root: Path) -> list[str]:
    """Return the version of each part as Debian names it, without Debian's own suffix."""
    found = []
    for command in SHOWN.values():
        done = subprocess.run(
            ["chroot", str(root), "sh", "-c", command], check=False, capture_output=True, text=True
        ).stdout.strip()
        found.append(re.sub(r"[+~-](?:dfsg|deb|ds|\d).*$", "", done.removeprefix("Python ").replace(" 5:", " ")))
    return found


def run_row(row: Row, options: argparse.Namespace) -> tuple[bool, list[str]]:
    root = RUN / row.name
    try:
        if not make_root(row, root, RUN / f"{row.name}-root.log"):
            return False, [row.name, *("" for _ in SHOWN), f"no root, see {RUN / row.name}-root.log", ""]
        cells = versions(root)
        results = [run_tests(row, root, "tests with servers", SERVERS)]
        if not options.servers_only:
            results.insert(0, run_tests(row, root, "fast tests", FAST))
        return all(well for well, _ in results), [row.name, *cells, *(text for _, text in results)]
    finally:
        if not options.keep:
            shutil.rmtree(root, ignore_errors=True)


def wheels_of(python: str) -> tuple[bool, list[str]]:
    """Look up every locked package for a Python that Debian does not have."""
    say(f"Python {python}: the locked wheels")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps", "--require-hashes"]
    target = ["--only-binary", ":all:", "--python-version", python, "--target", str(RUN / "wheels")]
    done = subprocess.run(
        [*pip, *target, "-r", "requirements/run.txt"], check=False, cwd=ROOT, capture_output=True, text=True
    )
    text = "not run: every locked wheel exists" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]
    return done.returncode == 0, [f"Python {python}", "none", python, *("" for _ in range(len(SHOWN) - 2)), text, ""]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"{', '.join(row.name for row in ROWS)} (default: all)")
    parser.add_argument("--servers-only", action="store_true", help="without the fast tests")
    parser.add_argument("--keep", action="store_true", help="keep the roots in run/compatibility")
    options = parser.parse_args()
    unknown = set(options.rows) - {row.name for row in ROWS}
    if unknown or os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        print(f"Unknown row: {', '.join(unknown)}" if unknown else "Run this as root, with: apt-get install mmdebstrap")
        return 2
    RUN.mkdir(parents=True, exist_ok=True)
    rows = [run_row(row, options) for row in ROWS if not options.rows or row.name in options.rows]
    if not options.rows:
        rows.append(wheels_of(UNAVAILABLE_PYTHON))
    heads = ["row", *SHOWN, *([] if options.servers_only else ["fast tests"]), "tests with servers"]
    print(f"\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for _, cells in rows:
        print(f"| {' | '.join(cells)} |")
    failures = sum(not well for well, _ in rows)
    print(f"\n{failures} rows failed." if failures else "\nAll rows passed.")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
