"""Judges our own lures and honest messages in ten languages and prints the share of lures that are not clean.

`python -m workshop.evaluate.languages` needs no engine and no corpus: the texts are in `tests/languages`, one file per
language. Every lure has two messages of different wording. Phrases are tuned on `lure` and never on `other`.
"""

import argparse
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from email.message import EmailMessage
from html import escape
from pathlib import Path
from uuid import UUID

from msgspec import Struct, field

from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence, Fact, Finding, Report, Status
from mailwarden.model.outcome import Decision, Judgement, Verdict
from mailwarden.model.tenant import AssignedBy, Assignment, Profile
from mailwarden.pipeline.worker_steps import Job, run_steps
from mailwarden.policy.decide import decide
from mailwarden.policy.judge import judge
from mailwarden.policy.rules import load_policy
from mailwarden.settings.reader import read

TEXTS = Path(__file__).parents[2] / "tests" / "languages"
LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "nl", "pl", "tr", "ja")
KINDS = ("lure", "other", "honest")
RECIPIENT = "dana@acme.example"
PROVED = ("aligned", "spf-pass", "dkim-pass", "dmarc-pass")
UNPROVED = ("unaligned", "spf-none", "dkim-none", "dmarc-none")
_LINK = re.compile(r"\[\[(.+?)\]\]")


class Text(Struct, frozen=True, forbid_unknown_fields=True):
    """One message: the name of its sender, its subject and its text, where `[[label]]` is a link."""

    sender: str = field(name="from")
    subject: str
    text: str


class Trio(Struct, frozen=True, forbid_unknown_fields=True):
    """A lure to tune on, one of other wording to check with, and an honest message with the same words."""

    lure: Text
    other: Text
    honest: Text


class Language(Struct, frozen=True, forbid_unknown_fields=True):
    """The thirteen lures in one language."""

    mailbox: Trio
    parcel: Trio
    bank: Trio
    tax: Trio
    invoice: Trio
    boss: Trio
    payroll: Trio
    document: Trio
    subscription: Trio
    prize: Trio
    crypto: Trio
    blackmail: Trio
    job: Trio


@dataclass(frozen=True, slots=True)
class Origin:
    """The address that a message comes from, whether it is authenticated, and where the links lead."""

    address: str
    proved: bool
    site: str = ""


LURES = Language.__struct_fields__
# Links and addresses have nothing suspicious in themselves, so that the language decides.
BAD = {
    "mailbox": Origin("info@rivermill-studio.example", False, "kestrel-web.example"),
    "parcel": Origin("office@tinhill-garage.example", False, "kestrel-web.example"),
    "bank": Origin("contact@opal-salon.example", False, "larkfield-net.example"),
    "tax": Origin("admin@greyford-school.example", False, "larkfield-net.example"),
    "invoice": Origin("marta@lind-trading.example", False),
    "boss": Origin("robin.w.office77@gmail.com", True),
    "payroll": Origin("jonas.k.1984@gmail.com", True),
    "document": Origin("team@stonebridge-build.example", False, "kestrel-web.example"),
    "subscription": Origin("orders.desk.7719@gmail.com", True),
    "prize": Origin("helen.w.chambers@gmail.com", True),
    "crypto": Origin("news@pinewood-daily.example", False, "larkfield-net.example"),
    "blackmail": Origin(RECIPIENT, False),
    "job": Origin("team@stonebridge-build.example", False),
}
GOOD = {
    "invoice": Origin("marta@lind-partner.example", True),
    "boss": Origin("robin@acme.example", True),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one message."""

    language: str
    lure: str
    kind: str
    verdict: Verdict
    held: bool
    points: int
    summary: str
    findings: tuple[str, ...]

    @property
    def noticed(self) -> bool:
        return self.verdict not in {Verdict.CLEAN, Verdict.BULK}


@functools.cache
def texts(language: str) -> Language:
    """Return the messages of one language."""
    return read(TEXTS / f"{language}.yml", Language)


def origin(lure: str, kind: str) -> Origin:
    """Return where a message of this kind comes from."""
    if kind != "honest":
        return BAD[lure]
    return GOOD.get(lure) or Origin(f"post@north-{lure}.example", True, f"north-{lure}.example")


def message(text: Text, sender: Origin) -> bytes:
    """Return the raw message: HTML if the text has a link, else plain."""
    mail = EmailMessage()
    mail["From"] = f'"{text.sender}" <{sender.address}>'
    mail["To"] = f'"Dana Reed" <{RECIPIENT}>'
    mail["Subject"] = text.subject
    mail["Date"] = "Sun, 15 Nov 2026 10:00:00 +0000"
    mail["Message-ID"] = f"<20261115.{sender.address}>"
    labels = _LINK.findall(text.text)
    if not labels:
        mail.set_content(text.text)
    else:
        if len(labels) > 1:
            mail["List-Unsubscribe"] = f"<https://{sender.site}/leave/2>"
        lines = (_LINK.sub(_anchor(sender.site), escape(line, quote=False)) for line in text.text.splitlines())
        mail.set_content("".join(f"<p>{line}</p>\n" for line in lines), subtype="html")
    return mail.as_bytes()


def _anchor(site: str) -> Callable[[re.Match[str]], str]:
    return lambda label: f'<a href="https://{site}/r/4b71">{label[1]}</a>'


def outcome(language: str, lure: str, kind: str, text: Text) -> Outcome:
    """Return what the worker steps and the shipped policy make of one message."""
    sender = origin(lure, kind)
    raw = message(text, sender)
    envelope = Envelope(sender.address, (RECIPIENT,), "203.0.113.77", "mail.example")
    reports = tuple(frame.report for frame in run_steps(Job(raw, envelope=envelope)))
    failed = [report.analyzer for report in reports if report.status is not Status.FINISHED]
    if failed:
        raise RuntimeError(f"{language} {lure} {kind}: {', '.join(failed)} did not finish")
    judgement = _judged(reports, sender, b"List-Unsubscribe:" in raw)
    names = {finding.name for report in reports for finding in report.findings}
    decision = decide(judgement, Assignment(UUID(int=1), AssignedBy.REQUEST, Profile.BALANCED), load_policy()).decision
    points = sum(judgement.points.values())
    held = decision is Decision.QUARANTINE
    return Outcome(language, lure, kind, judgement.verdict, held, points, judgement.summary, tuple(sorted(names)))


def _judged(reports: Iterable[Report], sender: Origin, declared: bool) -> Judgement:
    said = [f"authentication.{name}" for name in (PROVED if sender.proved else UNPROVED)]
    said += ["rspamd.unsubscribe-header"] if declared else []
    facts: dict[str, Fact] = {"domain": sender.address.partition("@")[2], "by": "DKIM"}
    other = Report("authentication", True, Status.FINISHED, 1.0, tuple(Finding(name, facts=facts) for name in said))
    return judge(Evidence((*reports, other)), load_policy())


def outcomes(languages: Iterable[str] = LANGUAGES) -> Iterator[Outcome]:
    """Judge every message of these languages."""
    for language in languages:
        for lure in LURES:
            trio: Trio = getattr(texts(language), lure)
            for kind in KINDS:
                yield outcome(language, lure, kind, getattr(trio, kind))


def share(these: Iterable[Outcome], kind: str, test: Callable[[Outcome], bool]) -> tuple[int, int]:
    """Return how many outcomes of a kind pass the test, and of how many."""
    chosen = [each for each in these if each.kind == kind]
    return sum(map(test, chosen)), len(chosen)


def _percent(counts: tuple[int, int]) -> str:
    return f"{counts[0]:3}/{counts[1]:<3} {100 * counts[0] / counts[1]:5.1f}%"


def _row(name: str, these: list[Outcome]) -> str:
    cells = [
        share(these, "lure", lambda each: each.noticed),
        share(these, "other", lambda each: each.noticed),
        share(these, "lure", lambda each: each.held),
        share(these, "other", lambda each: each.held),
        share(these, "honest", lambda each: not each.held),
        share(these, "honest", lambda each: not each.noticed),
    ]
    return f"{name:13}" + "  ".join(_percent(cell) for cell in cells)


def report(results: list[Outcome]) -> Iterator[str]:
    """Return the table by language and by lure, and one last line."""
    heads = ("lures noticed", "held out", "lures held", "held out", "honest passed", "honest clean")
    yield " " * 13 + "  ".join(f"{head:14}" for head in heads).rstrip()
    for language in LANGUAGES:
        yield _row(language, [each for each in results if each.language == language])
    yield ""
    for lure in LURES:
        yield _row(lure, [each for each in results if each.lure == lure])
    yield ""
    yield _row("all", results)
    yield last_line(results)


def last_line(results: list[Outcome]) -> str:
    """Return the figures that the command is judged by."""

    def noticed(kind: str, these: Iterable[Outcome]) -> float:
        found, of = share(these, kind, lambda each: each.noticed)
        return 100 * found / of

    by_language = [[each for each in results if each.language == language] for language in LANGUAGES]
    passed, honest = share(results, "honest", lambda each: not each.held)
    return (
        f"evaluate languages: lures not clean {noticed('lure', results):.1f}%"
        f" (worst language {min(noticed('lure', these) for these in by_language):.1f}%)"
        f" held-out wording {noticed('other', results):.1f}%"
        f" (worst {min(noticed('other', these) for these in by_language):.1f}%)"
        f" honest not held {100 * passed / honest:.1f}% (n {honest} each)"
    )


def main() -> None:
    """Print the table, and on request each message that was judged wrongly."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--missed", action="store_true", help="print the tuned lures that are clean, with findings")
    parser.add_argument("--honest", action="store_true", help="print honest messages that are not clean")
    given = parser.parse_args()
    results = list(outcomes())
    for each in results:
        missed = given.missed and each.kind == "lure" and not each.noticed
        accused = given.honest and each.kind == "honest" and each.noticed
        if missed or accused:
            print(f"{each.language} {each.lure} {each.kind}: {each.verdict.value} {each.points} {each.findings}")
    print("\n".join(report(results)))


if __name__ == "__main__":
    main()
