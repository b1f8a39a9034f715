"""The operator's YARA rules are checked before guard starts, and a worker goes by them."""

import subprocess
import sys

import pytest

from mailwarden.cli.config import check
from mailwarden.guard.config import PATH, GuardConfig, Yara, check_rules, rule_mistakes, rules_folder
from mailwarden.pipeline.worker_pool import Timeouts, WorkerPool
from mailwarden.pipeline.worker_steps import Frame
from mailwarden.serving.spool import Spooled
from mailwarden.settings.reader import Mistakes

RULE = 'rule needle { meta: verdict = "malware" strings: $a = "needle" condition: $a }'
NAMED = GuardConfig(yara=Yara("yara"))


@pytest.fixture
def rules(tmp_path):
    (tmp_path / "yara").mkdir()
    return tmp_path / "yara"


def test_without_rules_there_is_nothing_to_check(tmp_path):
    check_rules(GuardConfig(), tmp_path)
    assert rules_folder(GuardConfig(), tmp_path) == ""


def test_every_mistake_is_reported_with_its_place(rules, tmp_path):
    (rules / "own.yar").write_text(f"{RULE}\nrule a {{ condition: b }}\nrule c {{ condition: d }}", "utf-8")
    assert [mistake.line for mistake in rule_mistakes(NAMED, tmp_path)] == [2, 3]
    with pytest.raises(Mistakes, match=r"own\.yar:2: unknown identifier"):
        check_rules(NAMED, tmp_path)


def test_a_folder_without_rules_is_a_mistake(rules, tmp_path):
    with pytest.raises(Mistakes, match="holds no rules"):
        check_rules(NAMED, tmp_path)


def test_config_check_looks_at_the_rules_too(rules, tmp_path):
    (tmp_path / PATH).parent.mkdir(parents=True)
    (tmp_path / PATH).write_text("yara:\n  rules: yara\n", "utf-8")
    (rules / "own.yar").write_text("rule a { condition: b }", "utf-8")
    assert [mistake.file for mistake in check(tmp_path)] == [str(rules / "own.yar")]
    (rules / "own.yar").write_text(RULE, "utf-8")
    assert check(tmp_path) == []


@pytest.mark.slow
async def test_a_worker_goes_by_the_rules(rules, tmp_path):
    (rules / "own.yar").write_text(RULE, "utf-8")
    pool = WorkerPool(1, 1_024, Timeouts(), rules_folder(NAMED, tmp_path))
    await pool.start()
    try:
        frames: list[Frame] = []
        await pool.run(Spooled.of(b"Subject: hay\r\n\r\na needle\r\n"), frames.append)
    finally:
        await pool.stop()
    found = [finding.name for frame in frames for finding in frame.report.findings]
    assert {"yara.match", "yara.malware"} <= set(found)


UNDER_MDWE = """
import ctypes, sys
from mailwarden.cli.main import main
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) != 0:  # PR_SET_MDWE, as MemoryDenyWriteExecute= does it
    sys.exit(77)
sys.exit(main(["config", "check", "--config", sys.argv[1]]))
"""


@pytest.mark.slow
def test_rules_without_executable_memory_are_one_mistake(rules, tmp_path):
    (rules / "own.yar").write_text(RULE, "utf-8")
    (tmp_path / PATH).parent.mkdir(parents=True)
    (tmp_path / PATH).write_text("yara:\n  rules: yara\n", "utf-8")
    command = [sys.executable, "-c", UNDER_MDWE, str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    if done.returncode == 77:
        pytest.skip("the kernel cannot deny executable memory")
    assert (done.returncode, done.stderr) == (1, "")
    assert "Set MemoryDenyWriteExecute=no in the unit of guard" in done.stdout
