"""Alert rules: each has a severity, a runbook page and a promtool test that sees it fire and clear."""

import functools
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.conventions.project_files import ROOT
from tests.conventions.test_metrics import made
from tests.tables import every
from workshop.rig.programs import find_program

FOLDER = ROOT / "deploy" / "monitoring"
RULES = FOLDER / "alerts.yml"
TESTS = FOLDER / "alerts_test.yml"
SECTIONS = ("## Symptom", "## Meaning", "## Check", "## Fix")
OF_PROMETHEUS = {"up"}
SUFFIXES = {"histogram": ("_bucket", "_count", "_sum")}


@functools.cache
def load(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text("utf-8"))


def rules() -> list[dict[str, Any]]:
    return [rule for group in load(RULES)["groups"] for rule in group["rules"]]


def series_names() -> set[str]:
    """Return every series name that the processes expose."""
    return {f"{name}{suffix}" for name, (kind, _) in made().items() for suffix in SUFFIXES.get(kind, ("",))}


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(mailwarden_\w+)", expression))


RULE_IDS = [rule["alert"] for rule in rules()]


def test_there_are_rules_and_their_names_differ() -> None:
    assert len(RULE_IDS) >= 25
    assert len(set(RULE_IDS)) == len(RULE_IDS)


def test_a_rule_has_severity_texts_and_runbook() -> None:
    def check(rule: dict[str, Any]) -> None:
        assert rule["labels"]["severity"] in ("critical", "warning")
        annotations = rule["annotations"]
        assert annotations["summary"]
        assert annotations["description"]
        page = ROOT / annotations["runbook_url"]
        text = page.read_text("utf-8")
        assert page.parent == ROOT / "docs" / "runbooks"
        assert text.startswith(f"# {rule['alert']}\n")
        assert f"Severity: {rule['labels']['severity']}." in text
        assert f"```\n{rule['expr']}\n```" in text, "the page shows the rule's own expression"
        positions = [text.index(section) for section in SECTIONS]
        assert positions == sorted(positions)

    every(rules(), check, lambda rule: rule["alert"])


def test_a_rule_uses_metrics_that_exist() -> None:
    def check(rule: dict[str, Any]) -> None:
        used = metrics_in(rule["expr"])
        assert used or re.match(r"up\b", rule["expr"])
        assert used - series_names() == set()

    every(rules(), check, lambda rule: rule["alert"])


def test_every_page_belongs_to_a_rule_and_is_in_the_table() -> None:
    pages = {rule["annotations"]["runbook_url"]: rule["alert"] for rule in rules()}
    assert {f"docs/runbooks/{page.name}" for page in (ROOT / "docs" / "runbooks").glob("*.md")} == set(pages)
    table = (ROOT / "docs" / "monitoring.md").read_text("utf-8")
    assert [alert for url, alert in pages.items() if f"[{alert}]({url.removeprefix('docs/')})" not in table] == []


def test_every_rule_fires_and_clears_in_its_test() -> None:
    seen: dict[str, list[bool]] = {}
    for test in load(TESTS)["tests"]:
        for moment in test["alert_rule_test"]:
            seen.setdefault(moment["alertname"], []).append(bool(moment["exp_alerts"]))
    assert seen == {rule["alert"]: [False, True, False] for rule in rules()}, "silent, fires, clears"


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([find_program("promtool"), *words], check=False, capture_output=True, text=True, timeout=60)


@pytest.mark.long
@pytest.mark.slow
def test_promtool_accepts_the_rules_and_runs_their_tests() -> None:
    checked = promtool("check", "rules", str(RULES))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tested = promtool("test", "rules", str(TESTS))
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("rule", rules(), ids=RULE_IDS)
def test_a_rule_that_never_fires_fails_its_test(rule: dict[str, Any], tmp_path: Path) -> None:
    """Run one rule with its test as it is, and broken: a test that cannot fail is a defect."""
    own = [test for test in load(TESTS)["tests"] if test["name"] == rule["alert"]]
    (tmp_path / TESTS.name).write_text(json.dumps({**load(TESTS), "tests": own}))  # JSON is YAML
    for expression, code in ((rule["expr"], 0), ("vector(0) > 1", 1)):
        group = {"name": "one", "rules": [{**rule, "expr": expression}]}
        (tmp_path / RULES.name).write_text(json.dumps({"groups": [group]}))
        assert promtool("test", "rules", str(tmp_path / TESTS.name)).returncode == code
