"""Little corpora of our own through guard's own processing and the real engines, up to the last line."""

import re

import pytest

from tests.samples.small_corpus import write_corpus
from workshop.evaluate import __main__ as command
from workshop.evaluate.scanning import scan_with
from workshop.evaluate.tests.test_delivery import write_corpus as write_modern_corpus
from workshop.rig.samples import malware_message, plain_message, spam_message

CORPUS = {
    ("dev", "ham", "letters"): plain_message(),
    ("dev", "ham", "fixture"): plain_message(subject="Another meeting"),
    ("dev", "spam", "tests"): spam_message(),
    ("dev", "phishing", "pages"): plain_message().replace(b"text/plain", b"text/html").rstrip()
    + b'<form action="https://x.example/"><input type="password"></form>\r\n',
    ("dev", "malware-simulated", "tests"): malware_message(),
    ("dev", "malformed", "odd"): b"\0" * 100 + b"\n\n--\n",
}
AUTH = {
    "aligned": {"spf-pass", "dkim-pass", "dmarc-pass", "aligned"},
    "esp": {"spf-pass", "dkim-pass", "dmarc-pass", "aligned"},
    "spf-aligned": {"spf-pass", "dkim-none", "dmarc-pass", "aligned"},
    "spf-only": {"spf-pass", "dkim-none", "dmarc-none", "unaligned"},
    "dkim-other": {"spf-none", "dkim-pass", "dmarc-none", "unaligned"},
    "none": {"spf-none", "dkim-none", "dmarc-none", "unaligned"},
    "spoof": {"spf-softfail", "dkim-none", "dmarc-quarantine", "unaligned"},
}


@pytest.mark.slow
def test_a_corpus_is_scanned_and_judged_again_without_scanning(engines, tmp_path, monkeypatch, capsys):
    corpus = write_corpus(tmp_path / "corpus", CORPUS)
    places = ["--unpacked", str(tmp_path / "unpacked"), "--results", str(tmp_path / "results")]
    words = ["--corpus", str(corpus), *places]
    monkeypatch.setattr(
        command, "scan_all", lambda posts, total, go_on, _: go_on(engines, scan_with(engines, posts, total))
    )
    assert command.main([*words, "--learning", "--details", "--costs"]) == 0
    printed = capsys.readouterr().out
    line = printed.splitlines()[-1]
    assert line == "evaluate as shipped: ham held 0.00% suspicious 0.00% attacks held 100.00% (2 ham, 3 attacks)"
    assert "evaluate at FPR 0.5%: phishing 100.0% spam 100.0% bec-qr - malware 100.0% worst-ham 0.0%" in printed
    assert "malformed: 1 messages, 0 without a verdict; all classes: 0 of 6" in printed
    assert (tmp_path / "results" / "report.html").exists()
    monkeypatch.setattr(command, "scan_all", None)
    assert command.main([*words, "--rejudge", "--replay"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == line
    assert command.main([*words, "--refresh", "--findings", "html."]) == 0
    assert "html.credential-form" in capsys.readouterr().out


@pytest.mark.slow
def test_authentication_is_replayed_with_real_engines(tmp_path):
    rows = [
        {
            "path": f"{auth}.eml",
            "label": "ham",
            "group": f"ham-{auth}",
            "mail_from": "bounce@service.example" if auth in ("esp", "spf-only") else f"bounce@{auth}-shop.example",
            "auth": auth,
        }
        for auth in AUTH
    ]
    folder = write_modern_corpus(tmp_path / "modern", rows)
    for auth in AUTH:
        message = plain_message().replace(b"From: ", b"X-Was: ", 1)
        (folder / f"{auth}.eml").write_bytes(b"From: Ann <ann@" + auth.encode() + b"-shop.example>\r\n" + message)
    words = ["--corpus", str(folder), "--results", str(tmp_path / "results"), "--rejudge"]
    assert command.main(words[:-1]) == 0
    arguments = command._read_arguments(words)
    records = command._stored(command._open(arguments, tmp_path), arguments)
    found = {
        record.sample.auth: {
            finding.name.removeprefix("authentication.")
            for analyzer, finding in record.evidence.findings
            if analyzer == "authentication"
        }
        for record in records
    }
    assert found == AUTH


@pytest.mark.slow
def test_a_blind_run_shows_and_stores_no_message(engines, tmp_path, monkeypatch, capfd):
    rows = [
        {"path": f"secret-{number}.eml", "label": "ham", "group": "ham-hidden", "source": "hidden-source"}
        for number in range(6)
    ]
    folder = write_modern_corpus(
        tmp_path / "hidden-set", rows, messages=plain_message(subject="confidential") + b"\nhttps://tell.example/\n"
    )
    monkeypatch.setattr(
        command, "scan_all", lambda posts, total, go_on, _: go_on(engines, scan_with(engines, posts, total))
    )
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    assert command.main(["--corpus", str(folder), "--blind", "--replay"]) == 0
    told = capfd.readouterr()
    printed = told.out + told.err
    assert told.out.splitlines()[-1].startswith("evaluate as shipped: ham held ")
    assert told.err == "6 messages to scan; progress is not shown\n"
    assert "ham-hidden" in printed
    for word in ("secret-", "confidential", "hidden-source", "tell.example", "hidden-set", ".eml"):
        assert word not in printed
    assert not re.search(r"\b(?:urls|sender|html|authentication|rspamd)\.[a-z-]+", printed)
    assert set(tmp_path.rglob("*")) == before
