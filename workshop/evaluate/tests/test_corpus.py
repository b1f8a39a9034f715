"""Reading a corpus, keeping what was scanned, and looking at it again."""

import pytest

from mailwarden.model.envelope import Envelope
from tests.samples.judged import scanned
from tests.samples.small_corpus import write_corpus
from workshop.evaluate.corpus import Corpus
from workshop.evaluate.records import RecordFile, Run, key_of, newest
from workshop.evaluate.refreshing import refresh

LETTER = b"From: Ann <ann@sender.example>\nSubject: [collected] hello\n\nHello.\r\nBye.\n"
PAGE = (
    b"From: Ann <ann@sender.example>\nContent-Type: text/html\n\n"
    b'<form action="https://x.example/"><input type="password"></form>\n'
)


@pytest.fixture
def corpus(tmp_path):
    messages = {
        ("dev", "ham", "letters"): LETTER,
        ("dev", "phishing", "pages"): PAGE,
        ("dev", "malformed", "odd"): LETTER,
        ("test", "phishing", "bec-simulated"): LETTER,
    }
    made = Corpus(write_corpus(tmp_path / "corpus", messages), tmp_path / "unpacked")
    made.unpack()
    return made


def test_samples_are_those_of_the_split_and_know_their_class(corpus):
    assert [sample.kind for sample in corpus.samples("dev")] == ["ham", "phishing", "malformed"]
    assert [sample.kind for sample in corpus.samples("test")] == ["bec-qr"]
    assert [sample.kind for sample in corpus.samples("dev", 1)] == ["ham"]
    assert len(corpus.samples("dev", 99)) == 3


def test_a_message_is_normalised_and_has_one_kind_of_line_ends(corpus):
    ham, _, malformed = corpus.posts(corpus.samples("dev"), 0.0)
    assert ham.raw == b"From: Ann <ann@sender.example>\r\nSubject: hello\r\n\r\nHello.\r\nBye.\r\n"
    assert ham.envelope == Envelope("ann@sender.example", ("bob@corp.example",), "203.0.113.5", "mail.sender.example")
    assert malformed.raw == LETTER


def test_a_folder_without_a_corpus_is_reported(tmp_path):
    with pytest.raises(SystemExit, match=r"no MANIFEST\.csv"):
        Corpus(tmp_path, tmp_path)


def test_records_come_back_as_they_were(tmp_path):
    records = [scanned("ham"), scanned("phishing", "html.credential-form", rspamd=3.5)]
    run = Run("mail", "dev")
    RecordFile(tmp_path / "new" / run.named("abcdefabcdef")).write(records)
    assert newest(tmp_path / "new", run).read() == records


@pytest.mark.parametrize("other", [Run("mail", "dev", 5), Run("mail", "dev", None, False), Run("mail-2", "dev")])
def test_a_scan_of_another_kind_is_not_taken(tmp_path, other):
    RecordFile(tmp_path / other.named("abcdefabcdef")).write([])
    with pytest.raises(SystemExit, match="has no scan"):
        newest(tmp_path, Run("mail", "dev"))
    assert newest(tmp_path, other).read() == []


def test_the_key_follows_corpus_and_samples(corpus):
    whole, part = corpus.samples("dev"), corpus.samples("dev", 1)
    assert key_of(corpus.key, whole) == key_of(corpus.key, whole) != key_of(corpus.key, part)


@pytest.mark.slow
def test_refreshed_records_keep_engine_reports(corpus):
    samples = corpus.samples("dev")
    before = [scanned("ham", "rspamd.reject", "urls.ip-host", rspamd=7.0) for _ in samples]
    before = [type(old)(sample, old.evidence, "", "", old.rspamd) for old, sample in zip(before, samples, strict=True)]
    after = list(refresh({corpus.name: corpus}, before))
    names = [{finding.name for _, finding in record.evidence.findings} for record in after]
    assert all("rspamd.reject" in each and "urls.ip-host" not in each for each in names)
    assert "html.credential-form" in names[1]
    assert [record.rspamd for record in after] == [7.0] * 3
