"""Every analyzer has its line in a table, its rules, and sample messages with one that must find nothing."""

from pathlib import Path

import pytest

from tests.conventions.project_files import ROOT, SOURCE

ANALYZERS = sorted(
    file.stem for file in (SOURCE / "analysis" / "analyzers").glob("*.py") if not file.stem.startswith("_")
)
SAMPLES = ROOT / "tests" / "analyzers"


def expectations(analyzer: str) -> list[Path]:
    return sorted((SAMPLES / analyzer).glob("*.yml"))


@pytest.mark.parametrize("analyzer", ANALYZERS)
def test_an_analyzer_has_its_line_in_the_registry_or_as_an_engine_in_guard(analyzer: str) -> None:
    tables = [SOURCE / "pipeline" / "registry.py", SOURCE / "guard" / "app.py"]
    assert any(f"analyzers.{analyzer} import" in table.read_text("utf-8") for table in tables)


@pytest.mark.parametrize("analyzer", ANALYZERS)
def test_an_analyzer_has_its_rules(analyzer: str) -> None:
    assert (SOURCE / "policy" / "rules" / f"{analyzer}.yml").is_file()


@pytest.mark.parametrize("analyzer", ANALYZERS)
def test_an_analyzer_has_samples_with_one_without_findings(analyzer: str) -> None:
    found = expectations(analyzer)
    assert any("refuse:" in file.read_text("utf-8") for file in found)
    assert any("expect:" in file.read_text("utf-8") for file in found)
    # An engine's sample holds what the engine answered; any other one lies beside its message.
    messages = [file for file in found if "answer:" not in file.read_text("utf-8")]
    assert [file.name for file in messages if not file.with_suffix(".eml").is_file()] == []
