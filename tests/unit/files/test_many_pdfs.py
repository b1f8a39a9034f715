"""However many PDF files a message has, each is looked at: harmless ones in front hide none behind them."""

import email
import email.policy
from email.message import EmailMessage
from pathlib import Path

import pytest

from mailwarden.analysis.analyzer import PER_KIND
from mailwarden.files.pdf.document import PdfClock
from mailwarden.model.evidence import Evidence
from mailwarden.model.listing import Listing
from mailwarden.model.observables import Observable, Observables, ObservedFile
from mailwarden.model.outcome import Verdict
from mailwarden.pipeline.worker_steps import Job, run_steps
from mailwarden.policy.judge import judge
from mailwarden.policy.list_effects import without_allowed_files, without_allowed_links
from mailwarden.policy.rules import load_policy
from tests.unit.files.pdf_maker import link, pdf

SAMPLES = Path(__file__).parents[2] / "analyzers" / "pdf"
LAUNCH = ("actions.eml", "opening-script.eml", "packed-objects.eml")


def document(name: str) -> bytes:
    """Return the PDF file of a sample."""
    sample = email.message_from_bytes((SAMPLES / name).read_bytes(), policy=email.policy.default)
    (found,) = [part.get_payload(decode=True) for part in sample.walk() if part.get_filename()]
    assert isinstance(found, bytes)
    return found


def look(*documents: bytes) -> tuple[Evidence, tuple[ObservedFile, ...]]:
    message = EmailMessage()
    message["From"], message["Subject"] = "ada@north.example", "papers"
    message.set_content("Here are the papers that we spoke of on Thursday.")
    for number, content in enumerate(documents):
        message.add_attachment(content, maintype="application", subtype="pdf", filename=f"paper-{number}.pdf")
    frames = list(run_steps(Job(message.as_bytes(policy=email.policy.SMTP), wanted=tuple(Observable))))
    files = next(frame.observables.files for frame in frames if frame.observables)
    return Evidence(tuple(frame.report for frame in frames)), files


def verdict(evidence: Evidence) -> Verdict:
    return judge(evidence, load_policy()).verdict


@pytest.mark.slow
@pytest.mark.parametrize("name", LAUNCH)
@pytest.mark.parametrize("before", [5, 80])
def test_harmless_files_in_front_hide_nothing(name: str, before: int):
    harmless = [document("ordinary.eml") + b"\n%% %d" % number for number in range(before)]
    assert verdict(look(*harmless)[0]) is Verdict.CLEAN
    assert verdict(look(*harmless, document(name))[0]) is Verdict.MALWARE


def test_bait_is_found_behind_others():
    harmless = [document("ordinary.eml") + b"\n%% %d" % number for number in range(20)]
    found = {finding.name for _, finding in look(*harmless, document("bait.eml"))[0].findings}
    assert "pdf.lure" in found


def test_findings_of_many_files_are_bounded():
    evidence, _ = look(*(document("actions.eml") + b"\n%% %d" % number for number in range(30)))
    reported = [finding.name for _, finding in evidence.findings if finding.name.startswith("pdf.")]
    assert max(map(reported.count, reported)) == PER_KIND


def test_copies_of_an_allowed_file_hide_no_other():
    allowed = document("actions.eml")
    evidence, files = look(*(allowed for _ in range(30)), document("actions.eml") + b"\n%another")
    listing = Listing(allowed_files=frozenset({files[1].sha256}))
    assert files[1].name == "paper-0.pdf"
    assert verdict(without_allowed_files(evidence, listing, files, engines_clear=False)) is Verdict.MALWARE


def test_files_that_take_too_long_are_never_clean(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(PdfClock, "is_over", lambda clock, place: clock._coverage.beyond("pdf_seconds", place) or True)
    evidence, _ = look(document("ordinary.eml"))
    missed = [finding for _, finding in evidence.findings if finding.name == "structure.limit"]
    assert [finding.facts["limit"] for finding in missed] == ["pdf_seconds"]
    assert verdict(evidence) is Verdict.SUSPICIOUS


def with_links(count: int) -> bytes:
    links = b"".join(b"/URI (https://shop%d.example:8081/a) " % number for number in range(count))
    return pdf(link(b"(https://www.north.example/)")) + links


@pytest.mark.parametrize("count", [2, PER_KIND + 2])
def test_an_allowed_link_of_a_document_hides_no_other(count):
    evidence, _ = look(with_links(count))
    ports = [str(finding.facts["url"]) for _, finding in evidence.findings if finding.name == "urls.unusual-port"]
    assert ports == [f"https://shop{number}.example:8081/a" for number in range(min(count, PER_KIND))]
    omitted = [each.name for report in evidence.reports for each in report.omitted]
    assert ("urls.unusual-port" in omitted) is (count > PER_KIND)
    allowed = Listing(allowed_urls=frozenset(ports))
    assert without_allowed_links(evidence, allowed, Observables()).has("urls.unusual-port") is (count > PER_KIND)
    assert without_allowed_links(evidence, Listing(allowed_urls=frozenset(ports[:1])), Observables()).has(
        "urls.unusual-port"
    )
