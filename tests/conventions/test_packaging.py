"""The test of the Debian packages runs the commands of docs/install.md: they are where it looks for them."""

import importlib.util
import subprocess
import sys

import pytest

from tests.conventions.project_files import ROOT

sys.path.insert(0, str(ROOT / "packaging/test"))  # as for a program that is started from there
SPEC = importlib.util.spec_from_file_location("packages", ROOT / "packaging/test/packages.py")
assert SPEC is not None
assert SPEC.loader is not None
packages = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(packages)


def test_the_documented_steps_are_found() -> None:
    install, settings, database, start = packages.documented("## Install the package")
    assert "apt-get install --yes mailwarden " in install
    assert packages.ADDRESS in install
    assert settings.startswith("mailwarden engines install ")
    assert "mailwarden init /etc/mailwarden --user mailwarden " in database
    assert start.endswith("runuser -u mailwarden -- mailwarden doctor\n")


@pytest.mark.parametrize("heading", ["### A second guard on the same host", "### Keep the port open during restarts"])
def test_the_documented_variants_are_found(heading: str) -> None:
    (commands,) = packages.documented(heading)
    assert "systemctl" in commands


@pytest.mark.parametrize("script", sorted(ROOT.glob("packaging/**/*.sh")), ids=lambda path: path.name)
def test_every_script_parses(script: object) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_the_commands_that_change_the_units_are_found() -> None:
    two, one = packages.documented("### Separate processes on one host")
    assert two.rstrip().endswith("&& systemctl enable --now mailwarden-guard mailwarden-abby")
    assert one.rstrip().endswith("&& systemctl enable --now mailwarden-all")
    assert two.count("\n") == one.count("\n") == 1, "one command each"
