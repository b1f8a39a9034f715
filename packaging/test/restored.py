"""Restores the backups of `make check-long ONLY=upgrade` on a clean Debian 12 with this checkout's package.

Needs root, mmdebstrap, systemd-container, and the files that tests/faults/test_upgrade.py left in run/upgrade. Prints
one line per check.
"""

import argparse
import shutil
import sys
from pathlib import Path

from packages import HERE, ROOT, RUN, SuiteSummary, boot_root, documented, ready

SUITE = "bookworm"
MADE = ROOT / "run" / "upgrade"
ARCHIVES = ("previous.tar", "upgraded.tar")
ENGINES = ("rspamd", "clamav-daemon", "redis-server", "unbound", "postgresql", "postfix")


def install(summary: SuiteSummary, root: Path, package: Path, folder: Path) -> bool:
    (root / "test").mkdir()
    shutil.copy(package, root / "test/mailwarden.deb")
    inside = (
        'mount -t proc proc "$0/proc" && export DEBIAN_FRONTEND=noninteractive && '
        'exec chroot "$0" apt-get install --yes /test/mailwarden.deb "$@"'
    )
    command = ["unshare", "--mount", "sh", "-eu", "-c", inside, str(root), *ENGINES]
    return summary.command("the package and the engines are installed", command, folder / "install.log")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--skip-build", action="store_true", help="use the package in dist/bookworm")
    parser.add_argument("--keep", action="store_true", help="keep the root in run/packages")
    options = parser.parse_args()
    if not ready("mmdebstrap", "systemd-nspawn"):
        return 2
    if missing := [name for name in ARCHIVES if not (MADE / name).exists()]:
        print(f"{MADE} has no {missing[0]}. Run: make check-long ONLY=upgrade", file=sys.stderr)
        return 2
    summary = SuiteSummary(SUITE)
    summary.subject = "restored"
    folder, root = RUN / "test-restored", RUN / "root-restored"
    folder.mkdir(parents=True, exist_ok=True)
    build = ["packaging/build-deb.sh", SUITE]
    clean = ["packaging/clean-root.sh", SUITE, str(root), "systemd", "systemd-sysv", "dbus"]
    if (options.skip_build or summary.command("the package builds", build, folder / "build.log")) and summary.command(
        "a clean root", clean, folder / "root.log"
    ):
        (package,) = (ROOT / "dist" / SUITE).glob("*.deb")
        if install(summary, root, package, folder):
            (root / "test/engines.sh").write_text(documented("## Install the package")[1])
            for path in (
                *(MADE / name for name in (*ARCHIVES, "values.json", "held.eml")),
                HERE / "restored_client.py",
            ):
                shutil.copy(path, root / "test")
            boot_root(summary, root, folder, "restored.sh")
    if not options.keep:
        shutil.rmtree(root, ignore_errors=True)
    return summary.end()


if __name__ == "__main__":
    sys.exit(main())
