"""The systemd units of the Debian package: systemd understands them, and they confine the processes."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conventions.project_files import ROOT

DEBIAN = ROOT / "packaging" / "debian"
PREFIX = "mailwarden."
SERVICES = [
    "mailwarden-abby.service",
    "mailwarden-all.service",
    "mailwarden-guard.service",
    "mailwarden-guard@.service",
]
needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """Return the units under the names that the package installs, with a program that exists here."""
    for path in DEBIAN.glob(f"{PREFIX}mailwarden-*"):
        text = path.read_text().replace("/usr/bin/mailwarden serve", "/bin/true serve")
        (tmp_path / path.name.removeprefix(PREFIX)).write_text(text)
    return tmp_path


def test_every_unit_is_tested(units: Path) -> None:
    assert sorted(path.name for path in units.glob("*.service")) == SERVICES


def analyze(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *words], check=False, capture_output=True, text=True, cwd=folder, timeout=60
    )


@needs_systemd
@pytest.mark.parametrize("unit", [*SERVICES, "mailwarden-abby.socket", "mailwarden-guard.socket"])
def test_systemd_understands_the_unit(units: Path, unit: str) -> None:
    name = unit.replace("@.", "@2.")
    (units / unit).rename(units / name)
    done = analyze("verify", "--man=no", f"./{name}", folder=units)
    ours = [line for line in done.stderr.splitlines() if "mailwarden" in line]
    assert (done.returncode, ours) == (0, [])


@needs_systemd
@pytest.mark.parametrize("unit", SERVICES)
def test_the_exposure_is_at_most_one_and_a_half(units: Path, unit: str) -> None:
    done = analyze("security", "--offline=true", "--threshold=15", f"./{unit}", folder=units)
    assert done.returncode == 0, done.stdout


def test_both_guard_units_differ_in_their_folders_alone(units: Path) -> None:
    one, many = ((units / name).read_text() for name in SERVICES[2:])
    body = many.partition("[Unit]")[2].replace("-%i", "").replace(" (%i)", "")
    assert body == one.partition("[Unit]")[2]


def test_the_unit_of_both_confines_them_like_the_unit_of_guard(units: Path) -> None:
    both, guard = ((units / name).read_text() for name in SERVICES[1:3])
    assert both.partition("[Service]")[2] == guard.partition("[Service]")[2].replace("serve guard", "serve all")
    assert "Conflicts=mailwarden-abby.service mailwarden-guard.service\n" in both


@pytest.mark.parametrize("unit", SERVICES)
def test_a_process_may_write_only_to_its_state_and_spool(units: Path, unit: str) -> None:
    (paths,) = re.findall(r"(?m)^ReadWritePaths=(.*)$", (units / unit).read_text())
    assert [path.replace("-%i", "") for path in paths.split()] == ["/var/lib/mailwarden", "/var/spool/mailwarden"]
    assert "ProtectSystem=strict\n" in (units / unit).read_text()


def test_sockets_have_the_ports_of_the_shipped_configuration() -> None:
    for process, folder in (("abby", "abby/abby"), ("guard", "guard/core")):
        (port,) = re.findall(
            r"listen:\n  host: .*\n  port: (\d+)", (ROOT / "deploy/config" / folder / f"{process}.yml").read_text()
        )
        unit = (DEBIAN / f"{PREFIX}mailwarden-{process}.socket").read_text()
        assert f"ListenStream=127.0.0.1:{port}\n" in unit
