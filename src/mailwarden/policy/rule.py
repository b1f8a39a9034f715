"""What a rule is: one line of policy, as data, and what makes it a valid one."""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mailwarden.model.outcome import Verdict
from mailwarden.policy.explain import template_problems

NAMESPACES = frozenset(
    {"threat", "auth", "sender", "url", "file", "content", "engine", "list", "policy", "analysis", "flow"}
)
TAG_FORM = re.compile(r"^[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*$")
NAME_FORM = TAG_FORM  # findings and rules are named as tags are: `analyzer.what`
TECHNIQUE_FORM = re.compile(r"^T\d{4}(\.\d{3})?$")
CONVICTION = 100
SUSPICION = 50

Text = Annotated[str, Meta(min_length=1, max_length=600)]


class Severity(StrEnum):
    INFO = "info"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class Rule(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """These findings argue for that verdict with this weight, and are told to people in this sentence.

    The summary is the body of a sentence, without its capital letter and full stop, because it is read both alone
    and after the verdict ("Malware: the attachment ...").
    """

    id: Text
    name: Text
    description: Text
    when: str | tuple[str, ...]
    verdict: Verdict
    weight: Annotated[int, Meta(ge=-CONVICTION, le=CONVICTION)]
    summary: Text
    severity: Severity
    false_positives: Text
    unless: tuple[str, ...] = ()
    tag: str = ""
    technique: str = ""
    counts: Literal["once", "each"] = "once"
    cap: Annotated[int, Meta(ge=1, le=CONVICTION)] = CONVICTION
    forces_quarantine: bool = False
    # The verdict is at least `suspicious`: no tenant may lower the weight; one that raises it to a conviction has the
    # message quarantined.
    at_least_suspicious: bool = False
    joins_leading: bool = False  # it tells good from bad and not which bad: it counts with what leads without it
    # Analyzers, tags or rules that bring its verdict `cap` points at most together; with a weight of its own it takes
    # so much from what they bring, and from nothing else.
    restrains: tuple[str, ...] = ()

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the findings that must all be there."""
        return (self.when,) if isinstance(self.when, str) else self.when

    def is_restrained_by(self, other: "Rule") -> bool:
        """Tell whether the other rule names this one, its tag or its analyzer."""
        names = other.restrains
        return self.verdict is other.verdict and (
            self.id in names or self.id.partition(".")[0] in names or bool(self.tag and self.tag in names)
        )

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if not NAME_FORM.match(self.id):
            yield "id", f"`{self.id}` must look like analyzer.what"
        if not self.needs:
            yield "when", "must name at least one finding"
        for key, names in (("when", self.needs), ("unless", self.unless)):
            for name in names:
                if not NAME_FORM.match(name):
                    yield key, f"`{name}` must look like analyzer.what"
        if self.tag:
            yield from (("tag", problem) for problem in tag_problems(self.tag))
        if self.technique and not TECHNIQUE_FORM.match(self.technique):
            yield "technique", f"`{self.technique}` must be a MITRE ATT&CK technique such as T1566.001"
        yield from verdict_mistakes(self)
        yield from (("summary", problem) for problem in template_problems(self.summary))


class RuleFile(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The rules about one analyzer's findings, and a sentence for each tag that they introduce."""

    rules: tuple[Rule, ...]
    tags: dict[str, Text] = {}

    def mistakes(self) -> Iterator[tuple[str, str]]:
        for tag in self.tags:
            yield from (("tags", problem) for problem in tag_problems(tag))


def tag_problems(tag: str) -> Iterator[str]:
    """Say what keeps a text from being a public tag."""
    if not TAG_FORM.match(tag):
        yield f"`{tag}` must look like namespace.name in lower case"
    elif tag.partition(".")[0] not in NAMESPACES:
        yield f"`{tag}` has an unknown namespace; known are {', '.join(sorted(NAMESPACES))}"


def verdict_mistakes(rule: Rule) -> Iterator[tuple[str, str]]:
    """Say what does not go together with the verdict that a rule argues for."""
    if rule.verdict in (Verdict.CLEAN, Verdict.UNKNOWN):
        yield "verdict", f"no rule can argue for `{rule.verdict}`: it is what remains"
    if rule.weight < 0 and rule.verdict is Verdict.MALWARE:
        yield "weight", "nothing eases malware: must not be negative"
    if rule.forces_quarantine and rule.verdict is not Verdict.SUSPICIOUS:
        yield "forcesQuarantine", "belongs to rules that argue for `suspicious`; a conviction needs no force"
    if rule.at_least_suspicious and (rule.verdict is not Verdict.SUSPICIOUS or rule.weight < SUSPICION):
        yield "atLeastSuspicious", f"belongs to rules that argue for `suspicious` with at least {SUSPICION} points"
    if rule.joins_leading and rule.verdict is not Verdict.SPAM:
        yield "joinsLeading", "belongs to rules that argue for `spam`, where nothing else leads"
    if rule.restrains and (rule.verdict in (Verdict.MALWARE, Verdict.BLOCKED) or rule.weight > 0 or rule.joins_leading):
        yield "restrains", "belongs to rules that ease or weigh nothing; nothing restrains `malware` or `blocked`"
    if rule.counts == "each" and rule.weight < 0:
        yield "counts", "easing evidence counts once"
