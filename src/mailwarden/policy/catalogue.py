"""The catalogue of verdicts, tags and rules: data for the API, and the reference page in Markdown."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from mailwarden.model.tenant import Profile
from mailwarden.policy.rules import CONVICTION, SUSPICION, Policy, load_policy


class VerdictEntry(Struct, frozen=True, rename="camel"):
    verdict: str
    meaning: str
    decisions: dict[str, str]


class TagEntry(Struct, frozen=True, rename="camel"):
    """A tag, its meaning and its rules; the decision itself adds a tag without rules."""

    tag: str
    sentence: str
    rules: tuple[str, ...]


class RuleEntry(Struct, frozen=True, rename="camel"):
    id: str
    name: str
    description: str
    verdict: str
    weight: int
    tag: str
    severity: str
    false_positives: str
    technique: str
    forces_quarantine: bool


class Catalogue(Struct, frozen=True, rename="camel"):
    verdicts: tuple[VerdictEntry, ...]
    tags: tuple[TagEntry, ...]
    rules: tuple[RuleEntry, ...]


def catalogue(policy: Policy) -> Catalogue:
    """Return all verdicts, tags and rules, in the order of the reference page."""
    return Catalogue(
        verdicts=tuple(
            VerdictEntry(
                verdict.value, row.meaning, {profile.value: row.decision(profile).value for profile in Profile}
            )
            for verdict, row in policy.verdicts.items()
        ),
        tags=tuple(
            TagEntry(tag, text, tuple(rule.id for rule in policy.rules if rule.tag == tag))
            for tag, text in policy.tags.items()
        ),
        rules=tuple(
            RuleEntry(
                id=rule.id,
                name=rule.name,
                description=rule.description,
                verdict=rule.verdict.value,
                weight=rule.weight,
                tag=rule.tag,
                severity=rule.severity.value,
                false_positives=rule.false_positives,
                technique=rule.technique,
                forces_quarantine=rule.forces_quarantine,
            )
            for rule in policy.rules
        ),
    )


_OPENING = f"""# Verdicts, decisions and tags

For analysts. `make docs` generates this page from the shipped policy.

A *verdict* says what a message is. A *decision* says what happens to it. Every matching rule adds its points to one
verdict. The first verdict in the table below with {CONVICTION} points is the verdict of the message. If there is none:

1. A message beyond a limit is `suspicious` and always quarantined.
2. If a required analyzer did not finish, the verdict is `unknown`.
3. {SUSPICION} points over all threats together make the message `suspicious`.
4. {CONVICTION} points for `bulk` make it `bulk`.
5. All other messages are `clean`.
"""

_PROFILES = """\
Use the profile `monitor` in the first weeks of a tenant. It delivers everything except malware, messages beyond a limit
and messages that could not be inspected. If `balanced` would decide differently, the message gets the tag
`policy.monitor`, and the step `monitor` of the decision trace has that decision.
"""


def verdicts_and_tags() -> str:
    """Return the page as Markdown."""
    shown = catalogue(load_policy())
    return "\n".join([_OPENING, *_verdicts(shown), *_tags(shown), *_rules(shown.rules)])


def _verdicts(shown: Catalogue) -> Iterable[str]:
    yield "## Verdicts and decisions\n"
    yield from _table(
        ("verdict", "meaning", *shown.verdicts[0].decisions),
        ((_code(v.verdict), v.meaning, *v.decisions.values()) for v in shown.verdicts),
    )
    yield _PROFILES


def _tags(shown: Catalogue) -> Iterable[str]:
    yield "## Tags\n\nTags are sorted and unique. New ones may be added; none changes its meaning.\n"
    yield from _table(
        ("tag", "meaning", "rules"),
        ((_code(t.tag), t.sentence, ", ".join(map(_code, t.rules)) or "the decision itself") for t in shown.tags),
    )


def _rules(rules: Sequence[RuleEntry]) -> Iterable[str]:
    yield "## Rules\n"
    analyzer = ""
    for rule in rules:
        if analyzer != rule.id.partition(".")[0]:
            analyzer = rule.id.partition(".")[0]
            yield f"### {analyzer}\n"
        facts = [f"{rule.weight} points for `{rule.verdict}`", f"severity {rule.severity}"]
        facts += [f"tag `{rule.tag}`"] if rule.tag else []
        facts += [f"ATT&CK {rule.technique}"] if rule.technique else []
        facts += ["always quarantined"] if rule.forces_quarantine else []
        yield f"**`{rule.id}`: {rule.name}** ({'; '.join(facts)})  "
        yield f"{rule.description}  "
        yield f"False positives: {rule.false_positives}\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield _row(heads)
    yield _row(["---"] * len(heads))
    yield from map(_row, rows)
    yield ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _code(text: str) -> str:
    return f"`{text}`"
