"""The threat model names only tests that exist."""

import re

from tests.conventions.project_files import ROOT

NAMED = re.compile(r"`(tests/[\w/.]+)`")


def test_every_test_that_the_threat_model_names_exists() -> None:
    named = NAMED.findall((ROOT / "docs" / "threat-model.md").read_text("utf-8"))
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []
