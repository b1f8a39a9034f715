"""A file that a list allows is cleared whatever was found in it by our own analyzers, and no other is with it."""

from pathlib import Path

import pytest

from mailwarden.analysis.analyzer import PER_KIND, limit_each_kind
from mailwarden.model.evidence import Evidence, Finding, Omitted, Report, Status
from mailwarden.model.listing import Listing
from mailwarden.model.observables import Observable
from mailwarden.model.outcome import Verdict
from mailwarden.model.place import WHOLE_MESSAGE, Place
from mailwarden.pipeline.examination import Examination
from mailwarden.pipeline.worker_steps import Job, report_of, run_steps
from mailwarden.policy.judge import judge
from mailwarden.policy.list_effects import without_allowed_files
from tests.unit.scan.listing_case import FILE, POLICY

SAMPLES = Path(__file__).parents[2] / "analyzers"
OTHER = type(FILE)(Place(part="3", name="plan.docm"), "plan.docm", FILE.media_type, "e" * 64)
ALLOWED = Listing(allowed_files=frozenset({FILE.sha256}))


def examined(path: Path) -> Examination:
    examination = Examination(tuple(Observable))
    for frame in run_steps(Job(path.read_bytes(), wanted=tuple(Observable))):
        examination.take(frame)
    return examination


def macro(place: Place) -> Finding:
    return Finding("office.auto-macro", place, {"name": "plan.docm", "word": "AutoOpen"})


@pytest.mark.contract("2 malware floor")
@pytest.mark.parametrize("analyzer", ["attachments", "office", "pdf", "shortcuts"])
def test_the_exact_file_is_cleared_for_every_analyzer(analyzer):
    convicted = 0
    for path in sorted((SAMPLES / analyzer).glob("*.eml")):
        found = examined(path)
        evidence = Evidence(tuple(found.reports.values()))
        files = [file for file in found.observables.files if not file.is_body]
        if judge(evidence, POLICY).verdict is Verdict.MALWARE and files:
            convicted += 1
            listing = Listing(allowed_files=frozenset(file.sha256 for file in files))
            rest = without_allowed_files(evidence, listing, found.observables.files, engines_clear=False)
            assert judge(rest, POLICY).verdict is not Verdict.MALWARE, path.name
    assert convicted


@pytest.mark.parametrize(
    ("name", "place", "stays"),
    [
        ("pdf.launch", FILE.place, False),
        ("urls.login-path", FILE.place.link(), False),
        ("images.qr-unrelated-domain", FILE.place.on_page(2).code(), False),
        ("urls.login-path", FILE.place.code(), False),
        ("urls.login-path", FILE.place, True),  # the same link may stand in the message as well
        ("urls.login-path", OTHER.place.link(), True),
        ("office.auto-macro", OTHER.place, True),
        ("yara.malware", FILE.place, True),  # of the files that a rule matches it tells the first
        ("structure.limit", FILE.place, True),
        ("html.smuggling", WHOLE_MESSAGE, True),
        ("html.smuggling", FILE.place.within("inner.html"), True),
    ],
)
def test_findings_of_an_allowed_file_are_dropped_and_others_stay(name, place, stays):
    evidence = Evidence((Report("tested", True, Status.FINISHED, 1.0, (Finding(name, place),)),))
    rest = without_allowed_files(evidence, ALLOWED, (FILE, OTHER), engines_clear=False)
    assert bool(list(rest.findings)) is stays


@pytest.mark.parametrize(
    ("omitted", "cleared"),
    [((), True), ((Omitted("office.auto-macro", FILE.place),), True), ((Omitted("office.auto-macro"),), False)],
)
def test_findings_that_are_left_out_may_be_about_another_file(omitted, cleared):
    findings = tuple(macro(FILE.place) for _ in range(PER_KIND))
    evidence = Evidence((Report("office", True, Status.FINISHED, 1.0, findings, omitted=omitted),))
    rest = without_allowed_files(evidence, ALLOWED, (FILE, OTHER), engines_clear=False)
    assert (not rest.reports[0].findings) is cleared


def test_a_report_notes_dropped_findings():
    many = [macro(FILE.place)] * (PER_KIND + 2)
    report = report_of("office", lambda: limit_each_kind(many))
    assert (len(report.findings), report.omitted) == (PER_KIND, (Omitted("office.auto-macro"),))
    assert report_of("office", lambda: limit_each_kind(many[:PER_KIND])).omitted == ()
