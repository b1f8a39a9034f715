"""Changes the weights of rules in a policy.

A tenant may set a rule to any weight between zero and twice its own, with these exceptions. Rules for malware never
count less, and rules that force quarantine keep their weight. Learned rules never count more: alone they neither
convict nor clear. Content that was not inspected stays at least suspicious; if a tenant gives such a rule the weight of
a conviction, the message is quarantined.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from mailwarden.model.outcome import Verdict
from mailwarden.policy.rules import CONVICTION, Policy, Rule

_SETTING = re.compile(r"([a-z0-9.-]{1,200})=(-?\d{1,4})")


def read_weights(settings: Iterable[str]) -> dict[str, int]:
    """Return the weights in texts such as `html.form=80`, or raise ValueError with a sentence."""
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
    return _with(policy, {name: replace(known[name], weight=weight) for name, weight in weights.items()})


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


def tenant_problems(policy: Policy, weights: Mapping[str, int]) -> Iterator[str]:
    """Yield the errors in a tenant's weights."""
    known = {rule.id: rule for rule in policy.rules}
    yield from _problems(known, weights)
    for name, weight in weights.items():
        if name in known:
            least, most = bounds_of(known[name])
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
        index[rule.needs[0]] = tuple(changed.get(each.id, each) for each in index[rule.needs[0]])
    rules = tuple(changed.get(rule.id, rule) for rule in policy.rules)
    return replace(policy, rules=rules, rules_by_finding=index)


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
