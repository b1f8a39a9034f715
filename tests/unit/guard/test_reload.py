"""A reload sees every file of YARA rules that workers compile."""

from pathlib import Path

import pytest

from mailwarden.analysis.analyzers.yara import ENDINGS
from mailwarden.guard.config import GuardConfig, Yara
from mailwarden.guard.reload import rules_digest


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_changed_file_of_rules_changes_the_digest(tmp_path: Path, ending: str) -> None:
    config = GuardConfig(yara=Yara(rules="own"))
    (tmp_path / "own").mkdir()
    seen = {rules_digest(config, tmp_path)}
    for text in ("rule a { condition: true }", "rule a { condition: false }"):
        (tmp_path / "own" / f"rules{ending}").write_text(text)
        seen.add(rules_digest(config, tmp_path))
    assert len(seen) == 3
    assert rules_digest(GuardConfig(), tmp_path) == ""
