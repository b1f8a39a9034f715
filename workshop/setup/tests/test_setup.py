"""What the setup decides before it installs anything."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from workshop.setup import environment, host, packages
from workshop.setup.__main__ import fetched_megabytes

QUIET = Path(packages.__file__).with_name("quiet.sh")
URIS = """\
After this operation, 1,467 kB of additional disk space will be used.
'file:/pool/curl_7.88.deb' curl_7.88.deb 315764 MD5Sum:2e32
'file:/pool/libssl3_3.0.deb' libssl3_3.0.deb 2036016 MD5Sum:81a7
"""
SIMULATED = """\
Inst libssl3 [3.0.1] (3.0.2 Debian:12 [amd64])
Inst curl (7.88 Debian:12 [amd64])
Conf curl (7.88 Debian:12 [amd64])
"""


def test_an_upgraded_package_does_not_count_as_new() -> None:
    plan = packages.read_plan(["curl"], URIS, SIMULATED)
    assert (plan.missing, plan.new) == (("curl",), ("curl",))
    assert (plan.fetch, plan.disk) == pytest.approx((2.35178, 1.467))


@pytest.mark.parametrize(
    ("os_release", "right"),
    [
        ('ID=debian\nVERSION_ID="12"\n', True),
        ('ID=debian\nVERSION_ID="13"\n', True),
        ('ID=debian\nVERSION_ID="11"\nPRETTY_NAME="Debian 11"\n', False),
        ("ID=ubuntu\nVERSION_ID=24.04\n", False),
        ("", False),
    ],
)
def test_the_setup_runs_on_debian_12_and_13_only(os_release: str, right: bool) -> None:
    assert (host.wrong_system(os_release) == "") == right


@pytest.mark.parametrize(
    ("cores", "megabytes", "error", "warning"),
    [(2, 3_900, False, False), (1, 8_000, False, True), (2, 2_000, False, True), (4, 1_000, True, False)],
)
def test_a_small_host_is_warned_and_a_tiny_one_refused(cores: int, megabytes: int, error: bool, warning: bool) -> None:
    assert tuple(map(bool, host.wrong_size(cores, megabytes))) == (error, warning)


def test_too_little_disk_names_the_folder_and_the_need(tmp_path: Path) -> None:
    assert host.too_little_disk({tmp_path: 0.0}) == ""
    assert f"{tmp_path} has" in host.too_little_disk({tmp_path: 1e9})


def test_downloads_of_apt_and_pip_are_added_up() -> None:
    log = (
        "Fetched 88.1 MB in 7s (12.0 MB/s)\n  Downloading aiohttp-3.14.whl (1.7 MB)\n  Downloading idna.whl (500 kB)\n"
    )
    assert fetched_megabytes(log) == pytest.approx(90.3)


def test_the_locks_of_both_setups_agree() -> None:
    """They share an environment, and the smaller one has what Mailwarden itself needs."""
    run, setup, develop = (_releases(name) for name in ("run", "setup", "develop"))
    assert run.items() <= setup.items() <= develop.items()


def test_a_new_package_starts_nothing_and_others_reach_systemd(tmp_path: Path) -> None:
    program = tmp_path / "systemctl"
    program.symlink_to(QUIET)
    new = {**os.environ, "MAILWARDEN_NEW": "redis-server unbound", "DPKG_MAINTSCRIPT_PACKAGE": "unbound"}
    old = {**new, "DPKG_MAINTSCRIPT_PACKAGE": "openssh-server"}
    printed = [
        subprocess.run([program, "--version"], check=True, capture_output=True, text=True, env=each).stdout
        for each in (new, old)
    ]
    assert printed[0] == ""
    assert printed[1].startswith("systemd ")


def test_a_new_service_is_recorded_as_disabled(tmp_path: Path) -> None:
    program = tmp_path / "deb-systemd-helper"
    program.symlink_to(QUIET)
    environ = {**os.environ, "MAILWARDEN_NEW": "x", "DPKG_MAINTSCRIPT_PACKAGE": "x", "_DEB_SYSTEMD_HELPER_DEBUG": "1"}
    done = subprocess.run(
        [program, "enable", "no-such-unit-of-the-test.service"],
        check=False,
        capture_output=True,
        text=True,
        env=environ,
    )
    assert "action = update-state" in done.stderr


def test_the_setup_needs_nothing_but_the_standard_library() -> None:
    code = "import sys, workshop.setup.__main__; print(*(name for name in sys.modules))"
    root = environment.ROOT
    done = subprocess.run([sys.executable, "-S", "-c", code], check=True, capture_output=True, text=True, cwd=root)
    imported = {name.partition(".")[0] for name in done.stdout.split()}
    assert imported - sys.stdlib_module_names - {"workshop", "__main__"} == set()


def _releases(name: str) -> dict[str, str]:
    text = (environment.REQUIREMENTS / f"{name}.txt").read_text("utf-8")
    return dict(re.findall(r"(?m)^([A-Za-z0-9._-]+)==(\S+)", text))
