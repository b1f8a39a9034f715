"""A release: all files name one version, the checklist finds what is missing, archives are reproducible."""

import json
import os
from pathlib import Path

import pytest
import release

from mailwarden import __version__
from tests.conventions.project_files import ROOT

CHART = ROOT / "deploy/chart/mailwarden"


def read(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


def test_every_file_names_the_same_version() -> None:
    assert release.version_in(read) == __version__
    assert [check.text for check in release.check_version(read) if not check.well] == []


@pytest.mark.parametrize(
    ("path", "now", "instead", "word"),
    [
        ("CHANGELOG.md", f"## {__version__} (", "## Unreleased (", "CHANGELOG.md"),
        ("CHANGELOG.md", f"## {__version__} (", f"## {__version__}\n(", "CHANGELOG.md"),
        ("deploy/chart/mailwarden/Chart.yaml", f'appVersion: "{__version__}"', 'appVersion: "0.9.0"', "appVersion"),
        ("deploy/chart/mailwarden/Chart.yaml", f"\nversion: {__version__}", "\nversion: 0.9.0", "version of the Helm"),
        ("SECURITY.md", " | yes |", " | no |", "SECURITY.md"),
    ],
)
def test_a_different_version_is_named(path: str, now: str, instead: str, word: str) -> None:
    assert now in read(path)
    changed = {path: read(path).replace(now, instead)}
    (missing,) = [each for each in release.check_version(lambda name: changed.get(name) or read(name)) if not each.well]
    assert word in missing.text


def test_users_can_read_the_changelog_in_minutes() -> None:
    assert len(read("CHANGELOG.md").splitlines()) <= 120


def test_the_tests_of_a_release_are_the_gate_and_the_longer_checks() -> None:
    assert release.TARGETS.findall(read("Makefile")) == ["check", "check-long"]


def test_a_test_counts_only_for_the_content_that_it_ran_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "RUN", tmp_path)
    source = release.Source.of("HEAD")
    passed = release.record(source, "check")
    passed.parent.mkdir(parents=True)
    passed.touch()
    other = release.Source(commit=source.commit, tree="0" * 40, epoch=source.epoch)
    results = [
        [each.well for each in release.check_release(of) if "make check " in each.text] for of in (source, other)
    ]
    assert results == [[True], [False]]


def test_the_chart_is_packed_the_same_way_twice(tmp_path: Path) -> None:
    archives = []
    for number, mode in enumerate((0o644, 0o600)):
        chart = tmp_path / str(number) / "mailwarden"
        for path in sorted(CHART.rglob("*"), reverse=bool(number)):
            if path.is_file():
                copy = chart / path.relative_to(CHART)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(path.read_bytes())
                copy.chmod(mode)
                os.utime(copy, (number, number))
        archive = tmp_path / f"{number}.tgz"
        release.write_chart(chart, archive, epoch=1_000_000_000)
        archives.append(archive.read_bytes())
    assert archives[0] == archives[1]
    assert int.from_bytes(archives[0][4:8], "little") == 1_000_000_000, "the time in the header of gzip"


def test_an_sbom_lists_exactly_the_locked_libraries() -> None:
    locked = "ruamel-yaml==0.19.0 \\\n    --hash=sha256:00\n    # via mailwarden\nidna==3.20 \\\n    --hash=sha256:01\n"
    listed = [{"name": "ruamel.yaml", "version": "0.19.0"}, {"name": "idna", "version": "3.20"}]
    assert release.compare_sbom(json.dumps({"components": listed}), locked) == []
    assert release.compare_sbom(json.dumps({"components": listed[1:]}), locked) == ["ruamel-yaml==0.19.0"]
    older = [listed[0], {"name": "idna", "version": "3.19"}]
    assert release.compare_sbom(json.dumps({"components": older}), locked) == ["idna==3.19", "idna==3.20"]


def test_an_unknown_commit_is_refused() -> None:
    with pytest.raises(release.Refused, match="no-such-commit"):
        release.Source.of("no-such-commit")
