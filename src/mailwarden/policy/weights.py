"""A policy with other weights: some rules weigh more or less, everything else stays."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from mailwarden.policy.rule import CONVICTION, Rule
from mailwarden.policy.rules import Policy, make_policy

_SETTING = re.compile(r"([a-z0-9.-]{1,200})=(-?\d{1,4})")


def read_weights(settings: Iterable[str]) -> dict[str, int]:
    """Return the weights that texts such as `html.form=80` give, or raise ValueError with a sentence."""
    weights: dict[str, int] = {}
    for text in settings:
        if not (found := _SETTING.fullmatch(text)):
            raise ValueError(f"`{text}` must look like html.credential-form=80.")
        weights[found[1]] = int(found[2])
    return weights


def reweigh(policy: Policy, weights: Mapping[str, int]) -> Policy:
    """Return the policy with these weights, or raise ValueError with every mistake in them."""
    known = {rule.id: rule for rule in policy.rules}
    if problems := list(_problems(known, weights)):
        raise ValueError(" ".join(problems))
    rules = [replace(rule, weight=weights.get(rule.id, rule.weight)) for rule in policy.rules]
    return make_policy(rules, policy.tags, policy.verdicts)


def _problems(known: Mapping[str, Rule], weights: Mapping[str, int]) -> Iterator[str]:
    for name, weight in weights.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            yield f"There is no rule `{name}`{f'; did you mean `{near[0]}`?' if near else '.'}"
        elif abs(weight) > CONVICTION:
            yield f"`{name}` cannot weigh {weight}: a rule weighs -{CONVICTION} to {CONVICTION} points."
        else:
            changed = replace(known[name], weight=weight)
            yield from (f"`{name}` cannot weigh {weight}: {problem}." for _, problem in changed.mistakes())
