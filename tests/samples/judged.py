"""Judged messages for the tests of the evaluation: a class, a score or findings, and nothing else."""

from mailwarden.model.evidence import Evidence, Failure, Finding, Report, Status
from mailwarden.model.outcome import Decision, Judgement, Verdict
from mailwarden.policy.rules import FOLDER, ProfileFile, Rule, Severity, make_policy
from mailwarden.settings.reader import read
from workshop.evaluate.corpus import Sample
from workshop.evaluate.records import Scanned
from workshop.evaluate.trial import Judged

SUBSETS = {"ham": "list-x", "phishing": "pot", "spam": "list-dead", "malformed": "torture"}


VERDICTS = read(FOLDER / "profiles.yml", ProfileFile).verdicts


def policy_of(**rules):
    """Return a policy with one rule for each finding: `form=("phishing", 100)` is about `html.form`."""
    made = [
        Rule(f"html.{name}", name, "d", f"html.{name}", Verdict(verdict), weight, "s", Severity.LOW, "none")
        for name, (verdict, weight) in rules.items()
    ]
    return make_policy(made, {}, {verdict: VERDICTS[verdict] for verdict in Verdict})


def scanned(label, *findings, subset="", rspamd=None, problem=""):
    """Return a message in which each finding came from the analyzer that its name begins with."""
    analyzers = dict.fromkeys(name.partition(".")[0] for name in ("message.none", *findings))
    reports = tuple(
        Report(
            analyzer,
            True,
            Status.FINISHED,
            1.0,
            tuple(Finding(name) for name in findings if name.startswith(f"{analyzer}.")),
        )
        for analyzer in analyzers
    )
    sample = Sample(f"dev/{label}/x.eml", label, subset or SUBSETS.get(label, label), "ours")
    return Scanned(sample, Evidence(reports), "a <subject>", problem, rspamd)


def judged(label, score, *, subset="", rspamd=None, findings=()):
    """Return a message with this score, held where it is 100 or more."""
    decision = Decision.QUARANTINE if score >= 100 else Decision.DELIVER
    judgement = Judgement(Verdict.PHISHING if score >= 100 else Verdict.CLEAN, "", (), {}, ())
    return Judged(scanned(label, *findings, subset=subset, rspamd=rspamd), judgement, decision, score)


def missing_required(evidence: Evidence) -> tuple[Failure, ...]:
    """Return the failures of required analyzers."""
    return tuple(report.failure for report in evidence.reports if report.failure and report.required)
