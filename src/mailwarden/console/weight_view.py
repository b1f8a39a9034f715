"""The weights that a tenant gives to rules itself, beside what the rules weigh for everybody."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from mailwarden.policy.rule import Rule
from mailwarden.policy.rules import Policy
from mailwarden.policy.weights import bounds_of, tenant_problems

MAX_FOUND = 30


class OwnWeight(Struct, frozen=True):
    """One weight of a tenant; `rule` is None where the policy has no such rule any more, and it does nothing."""

    rule_id: str
    weight: int
    rule: Rule | None

    @property
    def acting(self) -> int:
        """The weight that counts, within the bounds of now."""
        if self.rule is None:
            return 0
        least, most = bounds_of(self.rule)
        return max(least, min(most, self.weight))


def own_weights(policy: Policy, weights: Mapping[str, int]) -> Sequence[OwnWeight]:
    return [OwnWeight(name, weight, find_rule(policy, name)) for name, weight in weights.items()]


def find_rule(policy: Policy, name: str) -> Rule | None:
    return next((rule for rule in policy.rules if rule.id == name), None)


def search_rules(policy: Policy, text: str) -> Sequence[Rule]:
    """Return the rules that have all words of the text in their id, name, tag or description."""
    words = text.casefold().split()
    return [rule for rule in policy.rules if all(word in _searched(rule) for word in words)] if words else []


def weighing_problem(policy: Policy, rule: Rule, given: str) -> str:
    """Say what keeps a text from being the tenant's weight of a rule; "" where nothing does."""
    digits = given.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 4):
        return "A weight is a whole number of points."
    problems = [*tenant_problems(policy, {rule.id: int(given)})]
    return problems[-1] if problems else ""  # the last names the bounds


def _searched(rule: Rule) -> str:
    return f"{rule.id} {rule.name} {rule.tag} {rule.description}".casefold()
