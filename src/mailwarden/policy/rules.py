"""Reads the policy: rules, tags and profiles, checked together; reports every mistake with its place.

The weights of rules can be changed. A tenant may set a rule to any weight between zero and twice its own, with these
exceptions. Rules for malware never count less, and rules that force quarantine keep their weight. Learned rules never
count more: alone they neither convict nor clear. Content that was not inspected stays at least suspicious; if a tenant
gives such a rule the weight of a conviction, the message is quarantined. An administrator of the tenant itself cannot
change rules that define a verdict; one of the deployment can, within these bounds.
"""

import difflib
import functools
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.tenant import Profile
from mailwarden.policy.sentences import template_problems
from mailwarden.settings.compiled import CompiledFile
from mailwarden.settings.reader import Mistake, Mistakes, read

FOLDER = Path(__file__).parent

NAMESPACES = frozenset(
    {"threat", "auth", "sender", "url", "file", "content", "engine", "list", "policy", "analysis", "flow"}
)
TAG_FORM = re.compile(r"^[a-z]+\.[a-z0-9]+(-[a-z0-9]+)*$")
NAME_FORM = TAG_FORM  # the form of finding and rule names, as of tags: `analyzer.what`
TECHNIQUE_FORM = re.compile(r"^T\d{4}(\.\d{3})?$")
CONVICTION = 100
SUSPICION = 50

Text = Annotated[str, Meta(min_length=1, max_length=600)]

_SETTING = re.compile(r"([a-z0-9.-]{1,200})=(-?\d{1,4})")


class About(StrEnum):
    """The subject of a fact of an explanation: the first word of its topic."""

    SENDER = "sender"
    LINKS = "links"
    TEXT = "text"
    FILES = "files"
    MESSAGE = "message"
    ENGINES = "engines"
    LISTS = "lists"


class VerdictRow(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    meaning: Annotated[str, Meta(min_length=1)]
    balanced: Decision
    strict: Decision
    monitor: Decision

    def decision(self, profile: Profile) -> Decision:
        decisions = {Profile.BALANCED: self.balanced, Profile.STRICT: self.strict, Profile.MONITOR: self.monitor}
        return decisions[profile]


class ProfileFile(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    verdicts: dict[str, VerdictRow]

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Yield an error for a missing profile and for each decision that no profile may make."""
        for verdict in Verdict:
            if verdict not in self.verdicts:
                yield "verdicts", f"says nothing about `{verdict}`"
        for name in self.verdicts.keys() - set(Verdict):
            yield "verdicts", f"`{name}` is no verdict"
        for name, row in self.verdicts.items():
            for profile in Profile:
                decision = row.decision(profile)
                if name == Verdict.MALWARE and decision is Decision.DELIVER:
                    yield "verdicts", f"{name}, {profile}: malware is never delivered"
                if decision is Decision.DROP:
                    yield "verdicts", f"{name}, {profile}: drop is never a default"
                if (name == Verdict.UNKNOWN) != (decision is Decision.UNDECIDED):
                    yield "verdicts", f"{name}, {profile}: `undecided` and `unknown` belong together"


class Severity(StrEnum):
    INFO = "info"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class Rule(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Findings that argue for a verdict with a weight, and the sentence that explains it.

    The summary is the body of a sentence, without its capital letter and full stop, because it is shown both alone and
    after the verdict ("Malware: the attachment ...").
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
    any_of: tuple[str, ...] = ()  # one of these must be present as well
    unless: tuple[str, ...] = ()
    tag: str = ""
    technique: str = ""
    counts: Literal["once", "each"] = "once"
    cap: Annotated[int, Meta(ge=1, le=CONVICTION)] = CONVICTION
    forces_quarantine: bool = False
    # The verdict is at least `suspicious`. A tenant cannot lower the weight; one that raises it to CONVICTION
    # quarantines the message.
    at_least_suspicious: bool = False
    # it shows that a message is bad, not why: it counts for the verdict that leads without it
    joins_leading: bool = False
    # Analyzers, tags or rules that together give the verdict at most `cap` points. A rule with a weight subtracts that
    # weight from their points instead, and from no other.
    restrains: tuple[str, ...] = ()
    topic: str = ""  # rules of one topic are one fact of the explanation; empty: the topic of the file
    context: bool = False  # the explanation shows it without points too

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the findings that must all be present."""
        return (self.when,) if isinstance(self.when, str) else self.when

    def is_restrained_by(self, other: "Rule") -> bool:
        """Return whether the other rule names this rule, its tag or its analyzer."""
        names = other.restrains
        return self.verdict is other.verdict and (
            self.id in names or self.id.partition(".")[0] in names or bool(self.tag and self.tag in names)
        )

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if not NAME_FORM.match(self.id):
            yield "id", f"`{self.id}` must look like analyzer.what"
        if not self.needs:
            yield "when", "must name at least one finding"
        for key, names in (("when", self.needs), ("anyOf", self.any_of), ("unless", self.unless)):
            for name in names:
                if not NAME_FORM.match(name):
                    yield key, f"`{name}` must look like analyzer.what"
        if self.tag:
            yield from (("tag", problem) for problem in tag_problems(self.tag))
        if self.topic:
            yield from (("topic", problem) for problem in topic_problems(self.topic))
        if self.technique and not TECHNIQUE_FORM.match(self.technique):
            yield "technique", f"`{self.technique}` must be a MITRE ATT&CK technique such as T1566.001"
        yield from verdict_mistakes(self)
        yield from (("summary", problem) for problem in template_problems(self.summary))


class RuleFile(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The rules about one analyzer's findings, and a sentence for each of their tags."""

    rules: tuple[Rule, ...]
    tags: dict[str, Text] = {}
    topic: str = ""  # of the rules without one of their own

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.topic or not all(rule.topic for rule in self.rules):
            yield from (("topic", problem) for problem in topic_problems(self.topic))
        for tag in self.tags:
            yield from (("tags", problem) for problem in tag_problems(tag))


def tag_problems(tag: str) -> Iterator[str]:
    """Yield the errors in a tag."""
    if not TAG_FORM.match(tag):
        yield f"`{tag}` must look like namespace.name in lower case"
    elif tag.partition(".")[0] not in NAMESPACES:
        yield f"`{tag}` has an unknown namespace; known are {', '.join(sorted(NAMESPACES))}"


def topic_problems(topic: str) -> Iterator[str]:
    """Yield the errors in a topic."""
    if not TAG_FORM.match(topic) or topic.partition(".")[0] not in set(About):
        yield f"`{topic}` must look like about.name; about is one of {', '.join(About)}"


def verdict_mistakes(rule: Rule) -> Iterator[tuple[str, str]]:
    """Yield the settings of a rule that do not fit its verdict."""
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


class Pieces(msgspec.Struct, frozen=True):
    """The checked contents of a policy, as they are compiled."""

    rules: tuple[Rule, ...]
    tags: Mapping[str, str]
    verdicts: Mapping[Verdict, VerdictRow]


def _sources() -> Iterator[Path]:
    yield from sorted((FOLDER / "rules").glob("*.yml"))
    for name in ("tags.yml", "profiles.yml", "rules.py"):
        yield FOLDER / name


COMPILED = CompiledFile(FOLDER / "__pycache__" / "policy.msgpack", Pieces, _sources)


class Policy(Struct, frozen=True):
    """Everything that turns evidence into a verdict and a verdict into a decision."""

    rules: tuple[Rule, ...]
    tags: dict[str, str]
    verdicts: dict[Verdict, VerdictRow]
    rules_by_finding: dict[str, tuple[Rule, ...]]  # by the first finding that each rule needs

    def decision_for(self, verdict: Verdict, profile: Profile) -> Decision:
        return self.verdicts[verdict].decision(profile)


def load_policy(folder: Path = FOLDER) -> Policy:
    """Read `rules/*.yml`, `tags.yml` and `profiles.yml`, or raise Mistakes with all errors in them.

    The shipped `tags.yml` and `profiles.yml` are used if the folder has none. The shipped policy is read once per
    process.
    """
    return _shipped() if folder == FOLDER else read_policy(folder)


@functools.cache
def _shipped() -> Policy:
    pieces = COMPILED.read()
    return make_policy(pieces.rules, pieces.tags, pieces.verdicts) if pieces else read_policy(FOLDER)


def read_policy(folder: Path) -> Policy:
    """Read the files of the folder, without the compiled policy."""
    mistakes: list[Mistake] = []
    files: dict[Path, RuleFile] = {}
    found_rules = sorted((folder / "rules").glob("*.yml"))
    if not found_rules:
        raise Mistakes([Mistake(str(folder), 1, "", "holds no rules: they stand in rules/*.yml")])
    for path in [*found_rules, _own_or_shipped(folder, "tags.yml")]:
        try:
            files[path] = read(path, RuleFile)
        except Mistakes as error:
            mistakes.extend(error.mistakes)
    try:
        profiles = read(_own_or_shipped(folder, "profiles.yml"), ProfileFile)
    except Mistakes as error:
        mistakes.extend(error.mistakes)
    if not mistakes:
        mistakes.extend(_mistakes_between(files))
    if mistakes:
        raise Mistakes(mistakes)
    rules = tuple(
        rule if rule.topic else replace(rule, topic=file.topic) for file in files.values() for rule in file.rules
    )
    tags = {tag: text for file in files.values() for tag, text in file.tags.items()}
    return make_policy(rules, tags, {verdict: profiles.verdicts[verdict] for verdict in Verdict})


def _own_or_shipped(folder: Path, name: str) -> Path:
    return folder / name if (folder / name).exists() else FOLDER / name


def make_policy(rules: Iterable[Rule], tags: Mapping[str, str], verdicts: Mapping[Verdict, VerdictRow]) -> Policy:
    """Build a policy from its checked contents."""
    ordered = tuple(sorted(rules, key=lambda rule: rule.id))
    index: dict[str, list[Rule]] = defaultdict(list)
    for rule in ordered:
        index[rule.needs[0]].append(rule)
    return Policy(
        rules=ordered,
        tags=dict(sorted(tags.items())),
        verdicts=dict(verdicts),
        rules_by_finding={name: tuple(indexed_rules) for name, indexed_rules in index.items()},
    )


def _mistakes_between(files: Mapping[Path, RuleFile]) -> Iterable[Mistake]:
    """Yield the errors between files, such as a tag that no file describes."""
    ids: dict[str, Path] = {}
    declared: dict[str, Path] = {}
    for path, file in files.items():
        for tag in file.tags:
            if tag in declared:
                yield _mistake(path, tag, f"`{tag}` is already described in {declared[tag].name}")
            declared[tag] = path
    for path, file in files.items():
        for rule in file.rules:
            if rule.id in ids:
                yield _mistake(path, rule.id, f"the id `{rule.id}` is already taken in {ids[rule.id].name}")
            ids[rule.id] = path
            if rule.id.partition(".")[0] != path.stem:
                yield _mistake(path, rule.id, f"the id `{rule.id}` must begin with `{path.stem}.`, as its file does")
            if rule.tag and rule.tag not in declared:
                fix = f"add it with one sentence to `tags` of {path.name}"
                yield _mistake(path, rule.tag, f"no file describes the tag `{rule.tag}` of `{rule.id}`: {fix}")
    yield from _restraining_nobody(files, {*ids, *declared, *(identity.partition(".")[0] for identity in ids)})
    used = {rule.tag for file in files.values() for rule in file.rules}
    for tag, path in declared.items():
        if tag not in used and path.name != "tags.yml":
            yield _mistake(path, tag, f"no rule carries the tag `{tag}`; tags that code adds are in tags.yml")


def _restraining_nobody(files: Mapping[Path, RuleFile], restrainable: Collection[str]) -> Iterable[Mistake]:
    for path, file in files.items():
        for rule in file.rules:
            for name in rule.restrains:
                if name not in restrainable:
                    yield _mistake(path, name, f"`{rule.id}` restrains `{name}`, which is no rule, tag or analyzer")


def _mistake(path: Path, text: str, problem: str) -> Mistake:
    """Return a mistake on the last line with the text: of two equal names the later one is wrong."""
    lines = path.read_text(encoding="utf-8").splitlines()
    line = max((number for number, content in enumerate(lines, 1) if text in content), default=1)
    return Mistake(str(path), line, "", problem)


def read_weights(settings: Iterable[str]) -> dict[str, int]:
    """Return the weights in texts such as `html.form=80`, or raise ValueError with a sentence."""
    weights: dict[str, int] = {}
    for text in settings:
        if not (setting := _SETTING.fullmatch(text)):
            raise ValueError(f"`{text}` must look like html.credential-form=80.")
        weights[setting[1]] = int(setting[2])
    return weights


def reweigh(policy: Policy, weights: Mapping[str, int]) -> Policy:
    """Return the policy with these weights, or raise ValueError with every mistake in them."""
    rules_by_id = {rule.id: rule for rule in policy.rules}
    if problems := list(_problems(rules_by_id, weights)):
        raise ValueError(" ".join(problems))
    return _with(policy, {name: replace(rules_by_id[name], weight=weight) for name, weight in weights.items()})


def bounds_of(rule: Rule) -> tuple[int, int]:
    """Return the lowest and the highest weight that a tenant may set for a rule."""
    if rule.forces_quarantine:
        return rule.weight, rule.weight
    if rule.at_least_suspicious:
        return rule.weight, CONVICTION
    if rule.joins_leading:
        return min(0, rule.weight), max(0, rule.weight)
    double = max(-CONVICTION, min(CONVICTION, 2 * rule.weight))
    least = rule.weight if rule.verdict is Verdict.MALWARE else min(0, double)
    return least, max(0, double)


def defines_verdict(rule: Rule) -> bool:
    """Return whether the rule alone decides: it convicts or holds a message, or stands for malware or `blocked`."""
    return (
        rule.forces_quarantine
        or rule.at_least_suspicious
        or rule.weight >= CONVICTION
        or rule.verdict in (Verdict.MALWARE, Verdict.BLOCKED)
    )


def own_bounds_of(rule: Rule) -> tuple[int, int]:
    """Return the lowest and the highest weight that an administrator of the tenant itself may set.

    Rules that define a verdict are fixed for them, so that the deployment's decisions about malware and files hold.
    """
    return (rule.weight, rule.weight) if defines_verdict(rule) else bounds_of(rule)


def tenant_problems(policy: Policy, weights: Mapping[str, int]) -> Iterator[str]:
    """Yield the errors in a tenant's weights."""
    rules_by_id = {rule.id: rule for rule in policy.rules}
    yield from _problems(rules_by_id, weights)
    for name, weight in weights.items():
        if name in rules_by_id:
            least, most = bounds_of(rules_by_id[name])
            if not least <= weight <= most:
                yield f"A tenant may let `{name}` weigh {least} to {most} points, not {weight}."


def for_tenant(policy: Policy, weights: Mapping[str, int]) -> Policy:
    """Return the policy with a tenant's weights, without unknown rules and within the current bounds."""
    if not weights:
        return policy
    changed: dict[str, Rule] = {}
    for rule in policy.rules:
        if rule.id in weights:
            least, most = bounds_of(rule)
            changed[rule.id] = replace(rule, weight=max(least, min(most, weights[rule.id])))
    return _with(policy, changed)


def _with(policy: Policy, changed: Mapping[str, Rule]) -> Policy:
    """Return the policy with the changed rules; it runs for each message, so all other rules are shared."""
    index = dict(policy.rules_by_finding)
    for rule in changed.values():
        index[rule.needs[0]] = tuple(
            changed.get(indexed_rule.id, indexed_rule) for indexed_rule in index[rule.needs[0]]
        )
    rules = tuple(changed.get(rule.id, rule) for rule in policy.rules)
    return replace(policy, rules=rules, rules_by_finding=index)


def _problems(rules_by_id: Mapping[str, Rule], weights: Mapping[str, int]) -> Iterator[str]:
    for name, weight in weights.items():
        if name not in rules_by_id:
            near = difflib.get_close_matches(name, rules_by_id, 1)
            yield f"There is no rule `{name}`{f'; did you mean `{near[0]}`?' if near else '.'}"
        elif abs(weight) > CONVICTION:
            yield f"`{name}` cannot weigh {weight}: a rule weighs -{CONVICTION} to {CONVICTION} points."
        else:
            changed = replace(rules_by_id[name], weight=weight)
            yield from (f"`{name}` cannot weigh {weight}: {problem}." for _, problem in changed.mistakes())
