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
SOCKETS = [
    "mailwarden-abby.socket",
    "mailwarden-all-abby.socket",
    "mailwarden-all-guard.socket",
    "mailwarden-guard.socket",
]
SEPARATE = ["mailwarden-abby.service", "mailwarden-abby.socket", "mailwarden-guard.service", "mailwarden-guard.socket"]
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
    assert sorted(path.name for path in units.glob("*.socket")) == SOCKETS


def analyze(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *words], check=False, capture_output=True, text=True, cwd=folder, timeout=60
    )


@needs_systemd
@pytest.mark.parametrize("unit", [*SERVICES, *SOCKETS])
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


def dependencies(text: str, kind: str) -> list[str]:
    return [name for line in re.findall(rf"(?m)^{kind}=(.*)$", text) for name in line.split()]


def test_separate_units_stop_before_the_unit_of_both_starts(units: Path) -> None:
    text = (units / "mailwarden-all.service").read_text()
    assert sorted(dependencies(text, "Conflicts")) == SEPARATE
    assert set(dependencies(text, "After")) >= set(SEPARATE), "without an order both would have the port at once"


@pytest.mark.parametrize("program", ["abby", "guard"])
def test_a_socket_of_both_conflicts_with_the_separate_units(units: Path, program: str) -> None:
    text = (units / f"mailwarden-all-{program}.socket").read_text()
    assert dependencies(text, "Conflicts") == [f"mailwarden-{program}.service", f"mailwarden-{program}.socket"]
    assert dependencies(text, "After") == dependencies(text, "Conflicts")
    assert dependencies(text, "Service") == ["mailwarden-all.service"]
    assert dependencies(text, "FileDescriptorName") == [f"mailwarden-{program}.socket"], (
        "the name that the process asks for"
    )


def test_the_package_enables_units_by_its_script_alone() -> None:
    lines = re.findall(r"(?m)^\tdh_installsystemd (.*)$", (DEBIAN / "rules").read_text())
    assert lines
    assert [line for line in lines if not line.startswith("--no-enable ")] == []


@pytest.mark.parametrize(
    ("before", "enabled", "expected"),
    [
        ("", "", ["mailwarden-all.service"]),
        ("", "mailwarden-abby.service", []),
        ("", "mailwarden-guard.service", []),
        ("1.0.0~deb12", "", []),
        ("1.0.0~deb12", "mailwarden-guard.service", []),
    ],
    ids=["new", "new-with-abby", "new-with-guard", "upgrade-without-units", "upgrade-of-a-scan-node"],
)
def test_only_a_new_installation_enables_one_process(
    tmp_path: Path, before: str, enabled: str, expected: list[str]
) -> None:
    """Run postinst with programs of the test in place of Python, the product and systemd's helper."""
    for name in ("python", "mailwarden"):
        (tmp_path / name).write_text("#!/bin/sh\n")
    (tmp_path / "deb-systemd-helper").write_text(
        f"""#!/bin/sh
        [ "$1" = --quiet ] && shift
        case $1 in
        is-enabled) [ "$2" = "{enabled}" ] ;;
        *) echo "$1 $2" >>{tmp_path}/done ;;
        esac
        """
    )
    script = (DEBIAN / f"{PREFIX}postinst").read_text().replace("/usr/lib/mailwarden/bin", str(tmp_path))
    for path in tmp_path.iterdir():
        path.chmod(0o755)
    subprocess.run(
        ["sh", "-c", script, "postinst", "configure", before],
        check=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )
    done = (tmp_path / "done").read_text().splitlines() if (tmp_path / "done").exists() else []
    assert done == [f"enable {unit}" for unit in expected]


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
        for name in (process, f"all-{process}"):
            unit = (DEBIAN / f"{PREFIX}mailwarden-{name}.socket").read_text()
            assert f"ListenStream=127.0.0.1:{port}\n" in unit
