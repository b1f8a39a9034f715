"""The operator's own rules: compiled with every mistake told, matched over all decoded contents, ended in time."""

import pytest
from msgspec.structs import replace

from mailwarden.analysis.analyzers import yara
from mailwarden.analysis.analyzers.yara import YaraAnalyzer
from mailwarden.analysis.view import View
from mailwarden.message.limits import LIMITS
from mailwarden.message.message import Message, Part
from mailwarden.model.evidence import Status
from mailwarden.model.place import Place
from mailwarden.pipeline.worker_steps import report_of

GOOD = 'rule good { meta: verdict = "%s" severity = "%s" strings: $a = "needle" condition: $a }'


def view(*contents):
    parts = (Part(str(n), "text/plain", "", "", "", content, "") for n, content in enumerate(contents))
    return View(Message(0, "", (), tuple(parts)))


def loaded(folder, source):
    (folder / "own.yar").write_text(source, "utf-8")
    analyzer = YaraAnalyzer()
    assert analyzer.load(folder) == ()
    return analyzer


def test_without_rules_nothing_matches():
    assert list(YaraAnalyzer().examine(view(b"needle"))) == []


@pytest.mark.parametrize(
    ("verdict", "severity", "names"),
    [
        ("malware", "high", ["yara.match", "yara.malware"]),
        ("Spam", "", ["yara.match", "yara.spam"]),
        ("malware", "low", ["yara.match"]),
        ("harmless", "high", ["yara.match"]),
    ],
)
def test_the_meta_of_a_rule_chooses_its_findings(tmp_path, verdict, severity, names):
    found = list(loaded(tmp_path, GOOD % (verdict, severity)).examine(view(b"hay", b"hay needle hay", b"needle")))
    assert [finding.name for finding in found] == names
    assert found[0].facts["rule"] == "good"
    assert found[0].facts["namespace"] == "own"
    assert found[0].place == Place(part="1")


def test_every_mistake_is_reported_with_file_and_line(tmp_path):
    (tmp_path / "broken.yar").write_text("rule a { condition: b }\nrule c { condition: $d }", "utf-8")
    (tmp_path / "included.yar").write_text('include "other.yar"', "utf-8")
    (tmp_path / "latin.yar").write_bytes(b"// \xff")
    (tmp_path / "sound.yar").write_text(GOOD % ("malware", "high"), "utf-8")
    (tmp_path / "read.me").write_text("no rules", "utf-8")
    analyzer = YaraAnalyzer()
    problems = analyzer.load(tmp_path)
    reported = [(problem.file.rpartition("/")[2], problem.line) for problem in problems]
    assert reported == [("broken.yar", 1), ("broken.yar", 2), ("included.yar", 1), ("latin.yar", 1)]
    assert all(problem.sentence for problem in problems)
    assert len(list(analyzer.examine(view(b"needle")))) == 2


def test_a_missing_folder_is_reported(tmp_path):
    (problem,) = YaraAnalyzer().load(tmp_path / "nowhere")
    assert "cannot be read" in problem.sentence


def test_rules_that_take_too_long_are_a_failure_and_not_silence(tmp_path, monkeypatch):
    analyzer = loaded(tmp_path, GOOD % ("malware", "high"))
    monkeypatch.setattr(yara, "MESSAGE_SECONDS", -1.0)
    report = report_of("yara", lambda: analyzer.examine(view(b"hay")))
    assert report.status is Status.FAILED


def test_matches_beyond_the_limit_are_recorded(tmp_path):
    source = "\n".join(f"rule r{number} {{ condition: true }}" for number in range(200))
    seen = view(b"a", b"b")
    assert len(list(loaded(tmp_path, source).examine(seen))) == 200
    seen.coverage.limits = replace(LIMITS, yara_matches=20)
    assert len(list(loaded(tmp_path, source).examine(seen))) == 20
    assert [missed.limit for missed in seen.coverage.missed] == ["yara_matches"]
