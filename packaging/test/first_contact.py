"""`make test-first-contact`: the README's quick start in clean roots of Debian 12 and 13, with minutes and megabytes.

Example: make test-first-contact SUITES=trixie

Each root has git, make and ca-certificates, and systemd, which boots it (systemd-nspawn, with this host's network). The
checkout is cloned into it as committed. Needs root, mmdebstrap and systemd-container.
"""

import argparse
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from packages import ready
from summary import Summary

ROOT = Path(__file__).parents[2]
RUN = ROOT / "run" / "first-contact"
SUITES = ("bookworm", "trixie")
GIVEN = ("git", "make", "ca-certificates")
# Every Debian that somebody installed has these; a root of mmdebstrap does not.
BOOTED = ("systemd", "systemd-sysv", "dbus")
CHECKOUT = "/srv/mailwarden"
NEEDED = ("mmdebstrap", "systemd-nspawn", "nsenter", "git")
# The goal of both setups: from nothing to the first screen.
MINUTES, MEGABYTES = 5, 600
STEP_SECONDS = 1_500
# What a reader has done when this test begins.
DONE = ("git clone ", "cd ", "sudo apt", "apt ")
READY = "Ctrl-C stops"
PORT = ":9081/"
CHROMIUM = "/usr/bin/chromium"


@dataclass
class Report:
    """The checks of one release of Debian, and what each step cost."""

    suite: str
    root: Path
    summary: Summary
    rows: list[tuple[str, float, float, float]] = field(default_factory=list)
    disk: float = 0.0

    def step(self, name: str, began: float, fetched: float = 0.0) -> None:
        disk = megabytes(self.root)
        self.rows.append((name, (time.monotonic() - began) / 60, fetched, disk - self.disk))
        self.disk = disk

    def table(self) -> str:
        _, *columns = zip(*self.rows, strict=True)
        minutes, megabytes_fetched, disk = (sum(map(float, column)) for column in columns)
        rows = [*self.rows, ("together", minutes, megabytes_fetched, disk)]
        lines = [f"| {name} | {time:.1f} | {fetch:.0f} | {grown:.0f} |" for name, time, fetch, grown in rows]
        head = f"\n| {self.suite} | minutes | MB fetched | MB on disk |\n|---|---|---|---|\n"
        return head + "\n".join(lines) + f"\n| goal | {MINUTES} | {MEGABYTES} | {MEGABYTES} |\n"


def megabytes(folder: Path) -> float:
    """Return the size of a folder without the index that apt makes again at any time; a host has it already."""
    du = ["du", "--summarize", "--one-file-system", "--block-size=1", "--exclude=*/var/cache/apt"]
    done = subprocess.run([*du, str(folder)], check=False, capture_output=True)
    return int(done.stdout.split()[0]) / 1e6


def make_root(suite: str, root: Path, log: Path) -> bool:
    with log.open("w") as output:
        command = ["packaging/clean-root.sh", suite, str(root), *GIVEN, *BOOTED]
        if subprocess.run(command, check=False, cwd=ROOT, stdout=output, stderr=output).returncode:
            return False
    # The setup must keep services from starting without this file.
    (root / "usr/sbin/policy-rc.d").unlink()
    shutil.copy("/etc/ssl/certs/ca-certificates.crt", root / "etc/ssl/certs/")
    return True


@contextmanager
def booted(root: Path, log: Path) -> Iterator[list[str]]:
    """Boot the root and return the words before a command that runs in it; it is shut down by its process id."""
    nspawn = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--resolv-conf=off", "--boot"]
    # nspawn of Debian 12 filters the calls of the worker sandbox, which a host permits.
    nspawn.append("--system-call-filter=landlock_create_ruleset landlock_add_rule landlock_restrict_self")
    with (
        log.open("w") as output,
        subprocess.Popen(
            [*nspawn, "--directory", str(root)], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        ) as process,
    ):
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
            wait_for(lambda: bool(children.read_text().split()), 30)
            leader = children.read_text().split()[0]
            enter = [
                "nsenter",
                f"--target={leader}",
                "--mount",
                "--uts",
                "--ipc",
                "--pid",
                "--cgroup",
                "--root",
                "--wd",
            ]
            state = [*enter, "systemctl", "is-system-running", "--wait"]
            wait_for(lambda: output_of(state).strip() in ("running", "degraded"), 60)
            yield enter
        finally:
            process.terminate()


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds:.0f} s")
        time.sleep(0.2)


def output_of(command: list[str]) -> str:
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment()).stdout


def environment() -> dict[str, str]:
    """Return what a login as root sets, and this host's certificates for pip."""
    kept = {name: os.environ[name] for name in ("PIP_CERT", "SSL_CERT_FILE") if name in os.environ}
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return {"HOME": "/root", "PATH": path, "LANG": "C.UTF-8", **kept}


def quick_start(page: str) -> list[str]:
    """Return the `sh` blocks of the quick start."""
    match = re.search(r"(?ms)^## Quick start\n(.*?)(?=^## |\Z)", page)
    return re.findall(r"(?ms)^```sh\n(.*?)^```", match[1]) if match else []


def split_at_server(block: str) -> tuple[str, str]:
    """Return what a block does first, and the command in it that runs until Ctrl-C, without its comment."""
    lines = [line for line in block.splitlines() if not line.startswith(DONE)]
    first = [line for line in lines if not re.match(r"make (run|demo)\b", line)]
    server = [line.partition("#")[0].strip() for line in lines if re.match(r"make (run|demo)\b", line)]
    return "\n".join(first), (server[0] if server else "")


class Root:
    """Commands in the booted root, one log for all."""

    def __init__(self, enter: list[str], log: Path) -> None:
        self.enter = enter
        self.log = log

    def shell(self, script: str, name: str = "sh") -> bool:
        command = [*self.enter, "sh", "-eu", "-c", f"cd {CHECKOUT}\n{script}", name]
        with self.log.open("a") as output:
            output.write(f"\n$ {script}\n")
            output.flush()
            done = subprocess.run(
                ["timeout", str(STEP_SECONDS), *command], check=False, env=environment(), stdin=subprocess.DEVNULL,
                stdout=output, stderr=output,
            )  # fmt: skip
        return done.returncode == 0

    def enabled(self) -> list[str]:
        return output_of([*self.enter, "systemctl", "list-unit-files", "--state=enabled", "--no-legend"]).splitlines()

    def unit_files(self) -> set[str]:
        listed = output_of([*self.enter, "systemctl", "list-unit-files", "--no-legend"])
        return {line.split()[0] for line in listed.splitlines()}

    def active(self) -> set[str]:
        listed = output_of([*self.enter, "systemctl", "list-units", "--state=active", "--plain", "--no-legend"])
        return {re.sub(r"@.*\.", "@.", line.split()[0]) for line in listed.splitlines() if line.strip()}

    @contextmanager
    def server(self, command: str, log: Path) -> Iterator[str]:
        """Start `make run` or `make demo`, return what it printed when it was ready, and press Ctrl-C at the end."""
        with log.open("w") as output:
            process = subprocess.Popen(
                [*self.enter, "sh", "-c", f"cd {CHECKOUT} && exec {command}"],
                env=environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
            try:
                wait_for(lambda: READY in log.read_text() or process.poll() is not None, STEP_SECONDS)
                yield log.read_text()
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGINT)
                process.wait(90)


def fetched(log: Path) -> float:
    """Return what the setup reported, in MB."""
    return sum(float(size) for size in re.findall(r"(\d+) MB fetched", log.read_text("utf-8", "replace")))


def first_page(url: str) -> str:
    """Request a page like a browser, with cookies and without a check of the throwaway certificate."""
    context = ssl._create_unverified_context()  # noqa: SLF001
    cookies = urllib.request.HTTPCookieProcessor()
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), cookies)
    try:
        with opener.open(url, timeout=60) as answer:
            return str(answer.read(), "utf-8", "replace")
    except OSError as error:
        return f"{url}: {error}"


def first_screen(url: str) -> str:
    """Open a page in this host's browser, and return the text on it."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(ignore_https_errors=True)
        page.goto(url)
        text = page.inner_text("body")
        browser.close()
    return text


def follow(report: Report, root: Root, folder: Path) -> None:
    """Follow the quick start: a server keeps running while the blocks after it are executed."""
    blocks = quick_start((report.root / CHECKOUT.lstrip("/") / "README.md").read_text("utf-8"))
    report.summary.line("README has a quick start", well=bool(blocks))
    for number, block in enumerate(blocks, 1):
        script, command = split_at_server(block)
        if script.strip():
            began = time.monotonic()
            before, units = root.enabled(), root.unit_files()
            well = root.shell(script)
            name = script.strip().splitlines()[0].partition("#")[0].strip()
            report.summary.line(f"{name}, see {root.log}", well=well)
            report.step(name, began, fetched(root.log))
            if "make setup" in script:
                check_units(report.summary, root, before, units)
                report.summary.line("a second setup has nothing to do", well=is_quick(root))
        if command == "make demo":
            demo(report, root, folder)
        elif command:
            serve(report, root, folder, command, blocks[number:])
            return


def check_units(summary: Summary, root: Root, before: list[str], known: set[str]) -> None:
    after = root.enabled()
    summary.line("the same units are enabled", well=after == before, output="\n".join(sorted({*after} - {*before})))
    started = (root.unit_files() - known) & root.active()
    summary.line("no new unit runs", well=not started, output="\n".join(sorted(started)))
    for path in ("/usr/sbin/policy-rc.d", "/etc/postgresql/*/main"):
        summary.line(f"no {path}", well=root.shell(f"! ls -d {path}"))


def is_quick(root: Root) -> bool:
    began = time.monotonic()
    return root.shell("make setup | grep -q 'installed already'") and time.monotonic() - began < 10


def serve(report: Report, root: Root, folder: Path, command: str, blocks: list[str]) -> None:
    """Start the server of the quick start, request its first page, and execute the blocks after it."""
    summary, began = report.summary, time.monotonic()
    with root.server(command, folder / "server.log") as printed:
        summary.line(f"{command}, see {folder / 'server.log'}", well=READY in printed)
        link = re.search(r"(?m)^console +(\S+)", printed)
        if link is None:
            summary.line("it prints the link of the console", well=False)
            return
        page = first_page(link[1])
        summary.line("the console's first page", well="<form" in page, output=page[:200])
        report.step(f"{command}, first page", began)
        chosen = re.search(r"(?m)^abby +https://\S+:(\d+)", printed)
        for block in blocks:
            # The root shares this host's loopback, where another abby may have the port of the page.
            pasted = block.replace(PORT, f":{chosen[1]}/") if chosen else block
            summary.line(f"as pasted: {block.strip().splitlines()[0][:60]}", well=root.shell(pasted))


def demo(report: Report, root: Root, folder: Path) -> None:
    """Start the demo, and look at its first screen with this host's browser."""
    began = time.monotonic()
    with root.server("make demo", folder / "demo.log") as printed:
        link = re.search(r"https://\S+:\d+/console/\S*", printed)
        report.summary.line(f"make demo, see {folder / 'demo.log'}", well=link is not None and READY in printed)
        if link is not None:
            report.summary.line("the demo's first screen", well="Sign in as" in first_screen(link[0]))
            report.step("make demo, first screen", began)


def run_suite(suite: str, options: argparse.Namespace) -> int:
    summary = Summary("first contact", f"{suite}: ")
    folder, root = RUN / suite, RUN / f"root-{suite}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        well = make_root(suite, root, folder / "root.log")
        summary.line("a clean root", well=well)
        if not well:
            return summary.failures
        report = Report(suite, root, summary, disk=megabytes(root))
        began = time.monotonic()
        target = root / CHECKOUT.lstrip("/")
        subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", str(target)], check=True)
        report.step("git clone", began, megabytes(target / ".git"))
        with booted(root, folder / "boot.log") as enter:
            inside = Root(enter, folder / "quick-start.log")
            inside.log.write_text("")
            follow(report, inside, folder)
        print(report.table())
    except (OSError, subprocess.SubprocessError) as error:
        summary.line(str(error), well=False)
    finally:
        if not options.keep:
            shutil.rmtree(root, ignore_errors=True)
    return summary.failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"{', '.join(SUITES)} (default: both)")
    parser.add_argument("--keep", action="store_true", help="keep the roots in run/first-contact")
    options = parser.parse_args()
    if not ready(*NEEDED):
        return 2
    try:
        failures = sum(run_suite(suite, options) for suite in options.suites or SUITES)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    print(f"{failures} checks failed." if failures else "All checks passed.")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
