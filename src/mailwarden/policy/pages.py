"""The page about verdicts and tags, made from the catalogue."""

from collections.abc import Iterable, Sequence

from mailwarden.policy.catalogue import Catalogue, RuleEntry, catalogue
from mailwarden.policy.rule import CONVICTION, SUSPICION
from mailwarden.policy.rules import load_policy

_OPENING = f"""# Verdicts, decisions and tags

This page is made from the policy that is shipped; `mailwarden` and this page cannot differ.

A *verdict* says what a message is, a *decision* says what happens to it. Every rule that speaks adds its points to
one verdict. The first verdict, in the order below, that gathers {CONVICTION} points is the message's. Without a
conviction: a tripped limit is `suspicious` and always quarantined; an analysis that a required analyzer did not
finish is `unknown`; {SUSPICION} points over all threats together are `suspicious`; {CONVICTION} points for `bulk`
are `bulk`; what remains is `clean`.
"""

_PROFILES = """\
The profile `monitor` is for the first weeks of a tenant: nothing is held back but malware, what tripped a limit and
what could not be looked at. Where the profile `balanced` would have decided otherwise, the message is tagged
`policy.monitor`, and the step `monitor` of the decision trace tells what would have happened.
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
