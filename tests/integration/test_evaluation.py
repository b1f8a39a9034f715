"""A little corpus of our own through guard's own processing and the real engines, up to the last line."""

import pytest

from evaluate import __main__ as command
from evaluate.scanning import scan_with
from rig.samples import malware_message, plain_message, spam_message
from tests.samples.small_corpus import write_corpus

CORPUS = {
    ("dev", "ham", "letters"): plain_message(),
    ("dev", "ham", "fixture"): plain_message(subject="Another meeting"),
    ("dev", "spam", "tests"): spam_message(),
    ("dev", "phishing", "pages"): plain_message().replace(b"text/plain", b"text/html").rstrip()
    + b'<form action="https://x.example/"><input type="password"></form>\r\n',
    ("dev", "malware-simulated", "tests"): malware_message(),
    ("dev", "malformed", "odd"): b"\0" * 100 + b"\n\n--\n",
}


@pytest.mark.slow
def test_a_corpus_is_scanned_and_judged_again_without_scanning(engines, tmp_path, monkeypatch, capsys):
    corpus = write_corpus(tmp_path / "corpus", CORPUS)
    places = ["--unpacked", str(tmp_path / "unpacked"), "--results", str(tmp_path / "results")]
    words = ["--corpus", str(corpus), "--split", "dev", *places]
    monkeypatch.setattr(
        command, "scan_all", lambda posts, total, go_on: go_on(engines, scan_with(engines, posts, total))
    )
    assert command.main(words) == 0
    printed = capsys.readouterr().out
    line = printed.splitlines()[-1]
    assert line.startswith("evaluate at FPR 0.5%: phishing 100.0% spam 100.0% bec-qr - malware 100.0% worst-ham 0.0%")
    assert "malformed: 1 messages, 0 without a verdict; all classes: 0 of 6" in printed
    assert "(rspamd " in line
    assert (tmp_path / "results" / "report.html").exists()
    monkeypatch.setattr(command, "scan_all", None)
    assert command.main([*words, "--rejudge"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == line
    assert command.main([*words, "--refresh", "--findings", "html."]) == 0
    assert "html.credential-form" in capsys.readouterr().out
