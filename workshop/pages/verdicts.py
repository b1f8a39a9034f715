"""The page about verdicts, tags and rules, made from the shipped policy."""

from collections.abc import Iterable, Sequence

from mailwarden.policy.catalogue import Catalogue, RuleEntry, catalogue
from mailwarden.policy.rules import CONVICTION, SUSPICION, load_policy
from workshop.pages.tables import code, table

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
    yield from table(
        ("verdict", "meaning", *shown.verdicts[0].decisions),
        ((code(v.verdict), v.description, *v.decisions.values()) for v in shown.verdicts),
    )
    yield _PROFILES


def _tags(shown: Catalogue) -> Iterable[str]:
    yield "## Tags\n\nTags are sorted and unique. New ones may be added; none changes its meaning.\n"
    yield from table(
        ("tag", "meaning", "rules"),
        ((code(t.tag), t.description, ", ".join(map(code, t.rules)) or "the decision itself") for t in shown.tags),
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
