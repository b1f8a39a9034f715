"""The catalogue of verdicts, tags and rules, as data for the API."""

from msgspec import Struct

from mailwarden.model.tenant import Profile
from mailwarden.policy.rules import Policy


class VerdictEntry(Struct, frozen=True, rename="camel"):
    verdict: str
    description: str
    decisions: dict[str, str]


class TagEntry(Struct, frozen=True, rename="camel"):
    """A tag, its meaning and its rules; the decision itself adds a tag without rules."""

    tag: str
    description: str
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
