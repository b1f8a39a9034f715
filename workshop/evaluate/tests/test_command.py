"""The command line of the evaluation, and what it lists."""

import io
import tarfile
from typing import Literal

import pytest
from msgspec.structs import replace

from tests.samples.judged import judged, policy_of, scanned
from workshop.evaluate import __main__ as command
from workshop.evaluate.corpus import Corpus
from workshop.evaluate.tests.test_delivery import MESSAGE, write_corpus
from workshop.evaluate.trial import try_all, without_findings

NAMES = ("a/1.eml", "a/2.eml", "b/3.eml")


@pytest.mark.parametrize("more", [["--rejudge"], ["--wrong", "all"], ["--details"], ["--findings"], ["--without", "x"]])
def test_a_blind_run_rejects_options_that_show_messages(more, capsys):
    with pytest.raises(SystemExit):
        command.main(["--corpus", "nowhere", "--blind", *more])
    assert "aggregates only" in capsys.readouterr().err


def test_a_failure_of_a_blind_run_shows_no_message(tmp_path, monkeypatch, capsys):
    folder = write_corpus(tmp_path / "set", [{"path": "secret.eml", "label": "ham", "group": "ham-a"}])

    def fail(*_):
        raise ValueError("secret.eml")

    monkeypatch.setattr(command, "scan_all", fail)
    with pytest.raises(SystemExit, match=r"^The blind run failed \(ValueError\)"):
        command.main(["--corpus", str(folder), "--blind"])
    assert "secret" not in "".join(capsys.readouterr())


def test_each_corpus_has_a_name_server_of_its_own(tmp_path, monkeypatch):
    """The senders of one corpus publish SPF and DMARC; a message of another must not fail by these records."""
    row = {"path": "a.eml", "label": "ham", "group": "ham-a", "mail_from": "ann@shop.example"}
    folders = [
        write_corpus(tmp_path / "new", [row | {"auth": "aligned"}], messages=MESSAGE),
        write_corpus(tmp_path / "old", [{"path": "a.eml", "label": "ham"}], messages=MESSAGE),
    ]
    published = []

    def scan(posts, _total, _go_on, dns_records):
        published.append(list(dns_records))
        return [replace(scanned("ham"), sample=posted.sample) for posted in posts]

    monkeypatch.setattr(command, "scan_all", scan)
    words = [word for folder in folders for word in ("--corpus", str(folder))]
    assert command.main([*words, "--results", str(tmp_path / "results"), "--unpacked", str(tmp_path / "u")]) == 0
    assert [any("v=spf1" in record for record in records) for records in published] == [True, False]


def with_path(one, path):
    return replace(one, scanned=replace(one.scanned, sample=replace(one.sample, path=path)))


def test_wrong_decisions_are_ham_with_points_and_attacks_delivered():
    mail = [judged("ham", 0), judged("ham", 120), judged("phishing", 120), judged("phishing", 60)]
    mail = [with_path(one, str(number)) for number, one in enumerate(mail)]
    assert [line.split()[0] for line in command._wrong_decisions(mail, "all")][1:] == ["1", "3"]
    assert [line.split()[0] for line in command._wrong_decisions(mail, "po*")][1:] == ["3"]


def test_findings_can_be_left_out_by_their_beginning():
    policy = policy_of(form=("phishing", 100))
    records = without_findings([scanned("phishing", "html.form", "urls.x")], ["html."])
    assert not try_all(records, policy)[0].held
    assert {finding.name for _, finding in records[0].evidence.findings} == {"urls.x"}


@pytest.mark.parametrize("mode", ["w:xz", "w:gz"])
@pytest.mark.parametrize("beginning", ["", "./", "messages/"])
def test_messages_come_from_an_archive(tmp_path, mode: Literal["w:xz", "w:gz"], beginning):
    folder = write_corpus(tmp_path / "set", [{"path": name, "label": "ham"} for name in NAMES])
    for name in NAMES:
        (folder / name).unlink()
    with tarfile.open(folder / f"messages.tar.{mode[2:]}", mode) as archive:
        for name in (*NAMES[:2], "../../outside.eml", "not-listed.eml"):
            member = tarfile.TarInfo(beginning + name)
            member.size = len(MESSAGE)
            archive.addfile(member, io.BytesIO(MESSAGE))
    corpus = Corpus(folder, tmp_path / "unpacked")
    corpus.unpack()
    assert [sample.path for sample in corpus.existing(corpus.samples("dev"))] == list(NAMES[:2])
    assert not [file for file in tmp_path.rglob("*.eml") if file.name not in ("1.eml", "2.eml")]
    assert not (tmp_path.parent / "outside.eml").exists()


def test_messages_may_be_in_the_folder_messages(tmp_path):
    folder = write_corpus(tmp_path / "set", [{"path": "a/1.eml", "label": "ham"}])
    (folder / "messages").mkdir()
    (folder / "a").rename(folder / "messages" / "a")
    corpus = Corpus(folder, tmp_path / "unpacked")
    assert corpus.post(corpus.samples("dev")[0], 0.0).envelope.recipients == ("bob@company.example",)
