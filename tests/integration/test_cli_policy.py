"""`mailwarden policy`: differences over history and files, and samples judged by the local analyzers."""

import asyncio
import json
from pathlib import Path
from shutil import copytree

import msgspec
import pytest

from mailwarden.cli.main import main
from mailwarden.database.pool import Database
from mailwarden.history.opening import open_history
from mailwarden.model.evidence import Evidence, Finding, Report, Status
from mailwarden.model.place import Place
from mailwarden.model.scope import Scope
from mailwarden.policy.rules import FOLDER, load_policy
from tests.samples.finished import finished_request

RULE = next(rule for rule in load_policy().rules if rule.id == "html.link-mismatch")
NOTHING = Evidence((Report("html", True, Status.FINISHED, 1.0),))
FOUND = Evidence((Report("html", True, Status.FINISHED, 1.0, (Finding(RULE.needs[0], Place(part="1"), {}),)),))
MESSAGE = b"From: Ada <ada@north.example>\r\nTo: bob@south.example\r\nSubject: Lunch\r\n\r\nAt noon?\r\n"


def write_lines(path: Path, *records: object) -> Path:
    path.write_bytes(b"\n".join(map(msgspec.json.encode, records)))
    return path


def keep(url: str, *evidences: Evidence) -> list[str]:
    requests = [finished_request(evidence=evidence, subject=f"message {n}") for n, evidence in enumerate(evidences)]

    async def save() -> None:
        database = Database(url)
        try:
            await open_history(database).save(Scope.deployment(), requests)
        finally:
            await database.close()

    asyncio.run(save())
    return [str(request.ggrid) for request in requests]


def test_other_weights_are_tried_on_history(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    ids = keep(database_url, FOUND, NOTHING)
    words = ["policy", "diff", "--set", f"{RULE.id}=100", "--database-url", database_url]
    assert main([*words, "-o", "json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert (reported["lookedAt"], [change["message"] for change in reported["changes"]]) == (2, ids[:1])
    assert reported["changes"][0]["after"] == {"verdict": "phishing", "decision": "quarantine"}
    assert reported["changes"][0]["rules"] == [{"rule": RULE.id, "before": RULE.weight, "after": 100}]
    assert reported["decisions"]["quarantine"] == {"before": 0, "after": 1}
    assert main([*words, "--exit-code"]) == 1
    text = capsys.readouterr().out
    assert f"{RULE.id} {RULE.weight} -> 100" in text
    assert "1 change:" in text


def test_a_search_and_a_limit_bound_the_messages(database_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    keep(database_url, FOUND, NOTHING, NOTHING)
    words = ["policy", "diff", "--profile", "strict", "-o", "json", "--database-url", database_url]
    for more, number in ((["--query", "subject:1"], 1), (["--last", "2"], 2), ([], 3)):
        assert main([*words, *more]) == 0
        assert json.loads(capsys.readouterr().out)["lookedAt"] == number
    assert main([*words, "--query", "verdict:evil"]) == 2
    assert "evil" in capsys.readouterr().err


def test_a_file_of_evidence_needs_no_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_lines(
        tmp_path / "a.jsonl",
        {"sample": {"path": "ham/1.eml", "label": "ham"}, "evidence": FOUND},
        {"name": "odd\x1b[31m", "evidence": FOUND},
        {"evidence": NOTHING},
    )
    assert main(["policy", "diff", "--file", str(file), "--set", f"{RULE.id}=100"]) == 0
    text = capsys.readouterr().out
    assert "3 messages judged" in text
    assert "ham/1.eml" in text
    assert "\x1b" not in text


def test_another_folder_of_rules_may_hold_rules_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copytree(FOLDER / "rules", tmp_path / "rules")
    rules = tmp_path / "rules" / "html.yml"
    rules.write_text(rules.read_text().replace(f"weight: {RULE.weight}", "weight: 100"))
    file = write_lines(tmp_path / "a.jsonl", {"name": "x", "evidence": FOUND})
    assert main(["policy", "diff", "--file", str(file), "--rules", str(tmp_path), "--exit-code"]) == 1
    assert "phishing/quarantine" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--file", "FILE"], "Choose the difference"),
        (["--file", "FILE", "--set", "html.nothing=1"], "There is no rule `html.nothing`"),
        (["--file", "FILE", "--rules", "FOLDER"], "holds no rules"),
        (["--file", "FILE", "--profile", "strict", "--last", "0"], "--last is 1 to"),
        (["--file", "FOLDER/none", "--profile", "strict"], "Cannot read"),
        (["--file", "FILE", "--profile", "strict"], "FILE:1: is not a line of evidence"),
    ],
)
def test_a_mistake_is_one_sentence(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_lines(tmp_path / "a.jsonl", {"verdict": "clean"})
    places = {"FILE": str(file), "FOLDER": str(tmp_path)}

    def put(text: str) -> str:
        for name, place in places.items():
            text = text.replace(name, place)
        return text

    assert main(["policy", "diff", *map(put, words)]) == 2
    assert put(said) in capsys.readouterr().err


def test_samples_are_judged_without_engines_one_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, wish in (("lunch", "verdict: clean\ndecision: deliver\n"), ("wrong", "verdict: spam\nexpect: [url.x]\n")):
        (tmp_path / f"{name}.eml").write_bytes(MESSAGE)
        (tmp_path / f"{name}.yml").write_text(wish)
    assert main(["policy", "test", str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "ok    lunch.eml  clean/deliver",
        "FAIL  wrong.eml  clean/deliver: verdict clean, not spam; without url.x (tags: sender.unknown-domain)",
        "2 samples, 1 not as expected.",
    ]
    (tmp_path / "wrong.yml").write_text("verdict: clean\nrefuse: [policy.warn]\n")
    assert main(["policy", "test", str(tmp_path), "-o", "json"]) == 0
    assert [result["complaints"] for result in json.loads(capsys.readouterr().out)] == [[], []]


def test_all_invalid_samples_are_reported_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "test", str(tmp_path)]) == 2
    assert "holds no messages" in capsys.readouterr().err
    for name in ("a", "b"):
        (tmp_path / f"{name}.eml").write_bytes(MESSAGE)
    (tmp_path / "b.yml").write_text("verdict: evil\n")
    assert main(["policy", "test", str(tmp_path)]) == 2
    reported = capsys.readouterr().err
    assert "a.yml:1: is missing" in reported
    assert "b.yml:1: verdict" in reported
    assert main(["policy", "test", str(tmp_path), "--url", "https://127.0.0.1:1", "--set", "html.form=1"]) == 2


@pytest.mark.parametrize("action", ["diff", "test"])
def test_the_help_has_an_example(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["policy", action, "--help"])
    assert f"Example:\n  mailwarden policy {action}" in capsys.readouterr().out
