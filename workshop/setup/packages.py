"""Finds missing Debian packages and their size, and installs them without enabling or starting a service."""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
LISTS = Path("/var/lib/apt/lists")
DAY = 86_400
# Programs by which a package's script enables, starts or creates something; quiet.sh stands in for each.
QUIET = (
    *("deb-systemd-helper", "deb-systemd-invoke", "invoke-rc.d", "update-rc.d", "systemctl", "service"),
    "pg_createcluster",
)
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHARE_OF_A_LINE = 10  # per cent of the way between two lines of progress
UNITS = {"B": 1e-6, "kB": 1e-3, "MB": 1.0, "GB": 1e3}


class SetupError(Exception):
    """The setup cannot go on; its text is for the person at the terminal."""


@dataclass(frozen=True)
class Plan:
    """Debian packages to install: those asked for, all new ones, and their size in MB."""

    missing: tuple[str, ...]
    new: tuple[str, ...] = ()
    fetch: float = 0.0
    disk: float = 0.0


def as_root() -> list[str]:
    """Return the words before a command that needs root."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") is None:
        raise SetupError(
            "Debian packages are missing, you are not root, and sudo is not installed. Run `make setup` as root once."
        )
    return ["sudo"]


def missing_packages(wanted: list[str]) -> list[str]:
    """Return those that are not installed, under their own name or as another package that provides them."""
    listed = _output(["dpkg-query", "-W", "-f", "${db:Status-Status}\t${Package}\t${Provides}\n"])
    present = set()
    for line in listed.splitlines():
        status, name, provides = line.split("\t")
        if status == "installed":
            present |= {name, *re.findall(r"(?:^|, )([a-z0-9.+-]+)", provides)}
    return [name for name in wanted if name not in present]


def interrupted() -> bool:
    """Return whether an earlier installation stopped half-way."""
    return bool(_output(["dpkg", "--audit"]).strip())


def lists_are_old() -> bool:
    """Return whether apt has no lists of packages, or lists older than a day."""
    times = [path.stat().st_mtime for path in LISTS.glob("*_Packages*")]
    return not times or time.time() - max(times) > DAY


def update_lists(log: Path) -> None:
    """Read the lists of packages again; `plan` reports a package that they lack."""
    with log.open("ab") as file:
        subprocess.run([*as_root(), "apt-get", "-q", "update"], check=False, stdout=file, stderr=file)


def plan(missing: list[str]) -> Plan:
    """Ask apt what it would install."""
    done = _run_apt(["--print-uris", "install", *missing])
    if done.returncode != 0:
        reason = next((line for line in done.stderr.splitlines() if line.startswith("E:")), "E: no reason").strip("E: ")
        raise SetupError(
            f"apt cannot install {' '.join(missing)}: {reason}. "
            "Check the network and the sources in /etc/apt, then run: apt-get update"
        )
    simulated = _run_apt(["--simulate", "install", *missing]).stdout
    return read_plan(missing, done.stdout, simulated)


def read_plan(missing: list[str], uris: str, simulated: str) -> Plan:
    """Read what apt printed: one line for each file, and for each package; an upgrade has its old version in [ ]."""
    fetch = sum(int(size) for size in re.findall(r"(?m)^'[^']+' \S+ (\d+) ", uris)) / 1e6
    grown = re.search(r"After this operation, ([\d.,]+) ([kMG]?B) of additional", uris)
    disk = float(grown[1].replace(",", "")) * UNITS[grown[2]] if grown else 0.0
    new = re.findall(r"(?m)^Inst (\S+) \(", simulated)
    return Plan(tuple(missing), tuple(new), fetch, disk)


def install(planned: Plan, log: Path, say: Callable[[str], None]) -> None:
    """Finish an interrupted installation, then install the packages; report progress in per cent."""
    before = enabled_units()
    with _quiet_path() as path:
        if interrupted():
            say("Debian packages: finishing an earlier installation that was interrupted")
            half = _half_installed()
            for words in (["dpkg", "--configure", "--pending"], [*_apt_get(path), "--fix-broken", "install"]):
                _run_to_log([*as_root(), *_environment(half, path), *words], log, say)
        if planned.missing:
            command = [*as_root(), *_environment(planned.new, path), *_apt_get(path), "install", *planned.missing]
            code = _run_to_log(command, log, say)
            if code != 0:
                raise SetupError(
                    f"apt-get failed with code {code}; the end of {log}:\n{_tail(log)}\n"
                    "Repair what it names, then run the same command again: it goes on where it stopped."
                )
    for unit in sorted(enabled_units() - before):
        say(f"{unit} was enabled by its package. It is disabled again.")
        subprocess.run([*as_root(), "systemctl", "--quiet", "disable", "--now", unit], check=False)


def enabled_units() -> set[str]:
    """Return the units that start at boot; none on a host without systemd."""
    if shutil.which("systemctl") is None:
        return set()
    printed = _output(["systemctl", "list-unit-files", "--state=enabled", "--no-legend", "--no-pager"])
    return {line.split()[0] for line in printed.splitlines() if line.strip()}


@contextlib.contextmanager
def _quiet_path() -> Iterator[str]:
    """Make a PATH for the scripts of packages, with quiet.sh in front."""
    with tempfile.TemporaryDirectory(prefix="mailwarden-setup-", dir=HERE.parents[1] / "run") as folder:
        for name in QUIET:
            (Path(folder) / name).symlink_to(HERE / "quiet.sh")
        Path(folder).chmod(0o755)
        yield f"{folder}:{SYSTEM_PATH}"


def _environment(new: tuple[str, ...], path: str) -> list[str]:
    settings = {
        "PATH": path,
        "MAILWARDEN_NEW": " ".join(new),
        "DEBIAN_FRONTEND": "noninteractive",
        "NEEDRESTART_SUSPEND": "1",
        "LC_ALL": "C.UTF-8",
    }
    return ["env", *(f"{name}={value}" for name, value in settings.items())]


def _apt_get(path: str) -> list[str]:
    options = {
        "APT::Status-Fd": "3",
        "APT::Keep-Downloaded-Packages": "false",
        "DPkg::Path": path,
        "DPkg::Lock::Timeout": "300",
        "Dpkg::Use-Pty": "0",
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    # Its progress comes on our pipe, its output goes to the log. sudo closes other files than these three.
    return ["sh", "-c", 'exec "$@" 3>&1 >&2', "sh", "apt-get", "-y", "-q", "--no-install-recommends", *words]


def _half_installed() -> tuple[str, ...]:
    """Return packages that were unpacked and never set up: their services are as new as those of new packages."""
    listed = _output(["dpkg-query", "-W", "-f", "${db:Status-Status}\t${Config-Version}\t${Package}\n"])
    rows = [line.split("\t") for line in listed.splitlines()]
    return tuple(name for status, version, name in rows if not version and status not in ("installed", "not-installed"))


def _run_to_log(command: list[str], log: Path, say: Callable[[str], None]) -> int:
    """Run a command of apt with its output in the log, and report the progress that it prints between."""
    shown = {"dlstatus": 0, "pmstatus": 0}
    names = {"dlstatus": "fetched", "pmstatus": "installed"}
    with (
        log.open("a", encoding="utf-8") as file,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file, text=True, errors="replace"
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            kind, _, status = line.partition(":")
            if kind not in shown:
                file.write(line)
                file.flush()
            elif match := re.match(r"[^:]*:([\d.]+):", status):
                tenth = int(float(match[1])) // SHARE_OF_A_LINE
                if tenth > shown[kind]:
                    shown[kind] = tenth
                    say(f"Debian packages: {tenth * SHARE_OF_A_LINE} % {names[kind]}")
    return process.returncode


def _tail(log: Path) -> str:
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-12:])


def _run_apt(words: list[str]) -> subprocess.CompletedProcess[str]:
    command = ["apt-get", "-y", "--no-install-recommends", *words]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, errors="replace", env={**os.environ, "LC_ALL": "C.UTF-8"}
    )


def _output(command: list[str]) -> str:
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment).stdout
