"""Names say what a value is: those that say nothing only become fewer, package by package."""

from pathlib import Path

from tests.conventions.project_files import ROOT
from workshop.measure.identifiers import allowed, count


def test_names_that_say_nothing_become_fewer() -> None:
    assert count(ROOT) == allowed(), "name the value; after naming some: python -m workshop.measure.identifiers"


def test_variables_parameters_and_fields_are_counted(tmp_path: Path) -> None:
    package = tmp_path / "src" / "mailwarden" / "scan"
    package.mkdir(parents=True)
    (package / "a.py").write_text("def f(given, *, seen=1):\n    found = [each for each in given]\n    return found\n")
    assert count(tmp_path) == {"scan": 4}
