"""Every file that names the version of the product names the same one."""

import re

from ruamel.yaml import YAML

from mailwarden import __version__
from tests.conventions.project_files import ROOT

HEADING = re.compile(r"(?m)^## (?P<version>\S+) \((?P<date>\d{4}-\d\d-\d\d)\)$")


def test_the_newest_heading_of_the_changelog_is_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    headings = [line for line in changelog.splitlines() if line.startswith("## ")]
    newest = HEADING.match(headings[0])
    assert newest is not None, f"{headings[0]}: expected `## VERSION (YYYY-MM-DD)`"
    assert newest["version"] == __version__
    assert len(changelog.splitlines()) <= 120, "users read the changelog: shorten it"


def test_the_chart_installs_this_version() -> None:
    chart = YAML(typ="safe").load(ROOT / "deploy/chart/mailwarden/Chart.yaml")
    assert chart["appVersion"] == __version__
    assert chart["version"] == __version__


def test_this_version_gets_security_fixes() -> None:
    minor = ".".join(__version__.split(".")[:2])
    assert f"\n| {minor} | yes |\n" in (ROOT / "SECURITY.md").read_text("utf-8")
