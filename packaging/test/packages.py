"""Builds, checks and boots the Debian packages: `make check-long ONLY=packages`; prints one line per check.

Needs root, mmdebstrap, lintian, piuparts, reprepro, systemd-container. systemd-nspawn boots the root without network;
apt downloads the packages into the same root before.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from summary import Summary

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
RUN = ROOT / "run" / "packages"
SUITES = ("bookworm", "trixie")
GOAL = 600
BOOT_SECONDS = 1_800
ADDRESS = "https://packages.company.example/mailwarden"
NEEDED = ("mmdebstrap", "lintian", "piuparts", "reprepro", "gpg", "systemd-nspawn")
# Programs whose Debian package has another name.
PACKAGES = {"strip": "binutils", "systemd-nspawn": "systemd-container"}


class SuiteSummary(Summary):
    """The checks of one release of Debian."""

    def __init__(self, suite: str) -> None:
        super().__init__("packages", f"{suite}: ")
        self.suite = suite

    def command(self, text: str, command: list[str], log: Path, *, fails: bool = False) -> bool:
        """Run a command with its output in a file; the line is well if it succeeds, or if it fails as expected."""
        with log.open("w") as output:
            done = subprocess.run(command, check=False, cwd=ROOT, stdout=output, stderr=output)
        well = (done.returncode != 0) == fails
        self.line(well=well, text=text if well else f"{text}, see {log}")
        return well


def ready(*programs: str) -> bool:
    """Return whether a check can begin; a program that is found missing only later costs minutes."""
    missing = [PACKAGES.get(name, name) for name in programs if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        print(f"Run this as root{', after: apt-get install ' if missing else ''}{' '.join(missing)}", file=sys.stderr)
    return not missing and os.geteuid() == 0


def documented(heading: str, page: str = "docs/install.md") -> list[str]:
    """Return the commands of a section of a page, one text for each block."""
    text = (ROOT / page).read_text("utf-8")
    (section,) = re.findall(rf"(?ms)^{re.escape(heading)}\n(.*?)(?=^##|\Z)", text)
    blocks = re.findall(r"(?ms)^( *)```sh\n(.*?)^ *```", section)
    return ["\n".join(line.removeprefix(indent) for line in text.splitlines()) + "\n" for indent, text in blocks]


def check_package(summary: SuiteSummary, package: Path, root: Path, folder: Path) -> None:
    """Run lintian, and piuparts in a copy of the clean root: what systemd itself leaves behind is not ours."""
    lintian = ["lintian", "--allow-root", "--fail-on", "error", str(package)]
    summary.command("lintian finds no error", lintian, folder / "lintian.log")
    mirror = subprocess.run(
        ["packaging/mirror.sh"], check=True, cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    base = folder / "piuparts.tar.gz"
    subprocess.run(["tar", "--create", "--gzip", f"--file={base}", f"--directory={root}", "."], check=True)
    piuparts = ["piuparts", "--basetgz", str(base), "--distribution", summary.suite, "--mirror", f"{mirror} main"]
    summary.command(
        "piuparts: install and purge", [*piuparts, "--no-upgrade-test", str(package)], folder / "piuparts.log"
    )
    base.unlink()


def make_repository(summary: SuiteSummary, package: Path, folder: Path) -> Path:
    """Sign a repository with a new key, and leave nothing of the key but its public half."""
    repository = folder / "repository"
    shutil.rmtree(repository, ignore_errors=True)
    with tempfile.TemporaryDirectory() as keys:
        os.environ["GNUPGHOME"] = keys
        key = ["gpg", "--batch", "--quiet", "--passphrase", "", "--quick-generate-key", "test@company.example"]
        subprocess.run([*key, "ed25519", "sign", "never"], check=True, capture_output=True)
        command = ["packaging/repository.sh", str(repository), "test@company.example", str(package)]
        summary.command("the repository is signed", command, folder / "repository.log")
        subprocess.run(["gpgconf", "--kill", "gpg-agent"], check=False)
    return repository


def install(summary: SuiteSummary, root: Path, repository: Path, folder: Path) -> bool:
    """Install by the documented commands of step 1, from the repository; a changed repository is refused before."""
    shutil.copytree(repository, root / "srv/mailwarden")
    (root / "test").mkdir()
    release = root / f"srv/mailwarden/dists/{summary.suite}/InRelease"
    signed = release.read_text()
    step = documented("## Install the package")[0]
    step = re.sub(r"(?m)^wget .*$", "cp /srv/mailwarden/mailwarden.gpg /usr/share/keyrings/", step)
    step = step.replace(ADDRESS, "file:/srv/mailwarden")
    (root / "test/step1.sh").write_text(step)
    inside = 'mount -t proc proc "$0/proc" && DEBIAN_FRONTEND=noninteractive exec chroot "$0" sh -eu /test/step1.sh'
    command = ["unshare", "--mount", "sh", "-eu", "-c", inside, str(root)]
    release.write_text(signed.replace("Label: Mailwarden", "Label: Mailwardem"))
    summary.command("a changed repository is refused", command, folder / "refused.log", fails=True)
    release.write_text(signed)
    return summary.command("the documented installation", command, folder / "install.log")


def boot_root(summary: SuiteSummary, root: Path, folder: Path, script: str) -> None:
    """Boot systemd in the root, run /test/SCRIPT there, and report each line that it wrote to /test/result."""
    for name in (script, "booted.sh", "send.py", "internet.conf"):
        shutil.copy(HERE / name, root / "test")
    unit = f"[Service]\nType=exec\nExecStart=/test/{script}\n[Install]\nWantedBy=multi-user.target\n"
    (root / "etc/systemd/system/package-test.service").write_text(unit)
    subprocess.run(["chroot", str(root), "systemctl", "--quiet", "enable", "package-test"], check=True)
    (root / "usr/sbin/policy-rc.d").unlink()
    nspawn = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network", "--resolv-conf=off"]
    # nspawn of Debian 12 filters the calls of the worker sandbox, which a host permits.
    nspawn.append("--system-call-filter=landlock_create_ruleset landlock_add_rule landlock_restrict_self")
    with (folder / "boot.log").open("w") as log:
        command = ["timeout", str(BOOT_SECONDS), *nspawn, "--directory", str(root), "--boot"]
        subprocess.run(command, check=False, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    shutil.copytree(root / "test", folder, dirs_exist_ok=True)
    lines = (root / "test/result").read_text().splitlines() if (root / "test/result").exists() else []
    for line in lines:
        state, _, text = line.partition(" ")
        if state in ("ok", "FAIL"):
            summary.line(well=state == "ok", text=text)
    summary.line(well=lines[-1:] == ["done"], text="the booted root ran every check")


def boot(summary: SuiteSummary, root: Path, folder: Path, began: float) -> None:
    blocks = documented("## Install the package")
    for number, text in enumerate(blocks[1:4], 2):
        (root / f"test/step{number}.sh").write_text(text)
    (root / "test/second-guard.sh").write_text(documented("### A second guard on the same host")[0])
    (root / "test/socket.sh").write_text(documented("### Keep the port open during restarts")[0])
    for name, text in zip(("two", "one"), documented("### Separate processes on one host"), strict=True):
        (root / f"test/{name}.sh").write_text(text)
    boot_root(summary, root, folder, "inside.sh")
    if (root / "test/first-verdict").exists():
        seconds = int((root / "test/first-verdict").read_text()) - began
        text = f"first verdict over SMTP {seconds:.0f} s after the clean root (goal {GOAL} s)"
        summary.line(well=seconds <= GOAL, text=text)


def run_suite(suite: str, options: argparse.Namespace) -> int:
    summary = SuiteSummary(suite)
    folder = RUN / f"test-{suite}"
    folder.mkdir(parents=True, exist_ok=True)
    if not options.skip_build and not summary.command(
        "the package builds", ["packaging/build-deb.sh", suite], folder / "build.log"
    ):
        return summary.failures
    (package,) = (ROOT / "dist" / suite).glob("*.deb")
    root = RUN / f"root-{suite}"
    clean = ["packaging/clean-root.sh", suite, str(root), "systemd", "systemd-sysv", "dbus"]
    if not summary.command("a clean root", clean, folder / "root.log"):
        return summary.failures
    if not options.skip_lintian:
        check_package(summary, package, root, folder)
    repository = make_repository(summary, package, folder)
    began = time.time()
    if install(summary, root, repository, folder):
        shutil.copy(package, root / "test/mailwarden.deb")
        boot(summary, root, folder, began)
    if not options.keep:
        shutil.rmtree(root)
    return summary.failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="bookworm, trixie (default: both)")
    parser.add_argument("--skip-build", action="store_true", help="use the package in dist/SUITE")
    parser.add_argument("--skip-lintian", action="store_true", help="without lintian and piuparts")
    parser.add_argument("--keep", action="store_true", help="keep the root in run/packages")
    options = parser.parse_args()
    if not ready(*NEEDED):
        return 2
    failures = sum(run_suite(suite, options) for suite in options.suites or SUITES)
    print(f"{failures} checks failed." if failures else "All checks passed.")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
