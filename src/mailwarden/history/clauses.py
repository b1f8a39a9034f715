"""A query as conditions of SQL, with every value as a parameter."""

from collections.abc import Sequence
from uuid import UUID

from msgspec.structs import replace

from mailwarden.history.operators import Condition
from mailwarden.history.terms import number_of
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.scope import Scope

_CLOSED: dict[str, type[Verdict] | type[Decision]] = {"verdict": Verdict, "decision": Decision}
_HAS_ALL = "terms @> {}::bigint[]"
_HAS_ONE = "terms && {}::bigint[]"


class Clauses:
    """The conditions of one search; `indexed` tells whether the index of terms can find the rows.

    The first parameters of the statement are the caller's: it says how many.
    """

    def __init__(self, scope: Scope, conditions: Sequence[Condition], reserved: int) -> None:
        self.values: list[object] = []
        self._reserved = reserved
        self._texts: list[str] = []
        self._needed: list[str] = []  # terms that every row has
        self.indexed = False
        for condition in map(_without_negation, conditions):
            if condition.negated:
                self._exclude(condition)
            else:
                self._require(condition)
        self._keep_to(scope)
        if self._needed:  # in one piece, so that the index goes by the rarest of them
            self._texts.append(self._has(_HAS_ALL, self._needed))

    @property
    def sql(self) -> str:
        return " AND ".join(self._texts) if self._texts else "true"

    def _keep_to(self, scope: Scope) -> None:
        """Say whose rows may be seen: by the column, always, and by the index where that finds them faster."""
        if scope.tenants is None:
            return
        tenants: list[UUID] = sorted(scope.tenants)
        self._texts.append(f"tenant = ANY({self._parameter(tenants)}::uuid[])")
        if len(tenants) == 1 or not self.indexed:
            self._require(Condition("tenant", "", (tuple(f"tenant:{tenant}" for tenant in tenants),)))

    def _require(self, condition: Condition) -> None:
        single = [group[0] for group in condition.groups if len(group) == 1]
        several = tuple(group for group in condition.groups if len(group) != 1)
        self._needed += single
        self._texts += self._pieces(replace(condition, groups=several))
        self.indexed = self.indexed or bool(condition.groups)

    def _exclude(self, condition: Condition) -> None:
        if not condition.phrase:  # words that do not stand side by side are no reason to leave a row out
            self._texts.append(f"({' AND '.join(self._pieces(condition))}) IS NOT TRUE")

    def _pieces(self, condition: Condition) -> list[str]:
        pieces = [self._has(_HAS_ONE, group) for group in condition.groups]
        if condition.network:
            pieces.append(f"remote_address <<= {self._parameter(condition.network)}::text::inet")
        if condition.ggrid is not None:
            pieces.append(f"ggrid = {self._parameter(condition.ggrid)}")
        return pieces

    def _has(self, piece: str, terms: Sequence[str]) -> str:
        return piece.format(self._parameter([number_of(term) for term in terms]))

    def _parameter(self, value: object) -> str:
        self.values.append(value)
        return f"${self._reserved + len(self.values)}"


def narrowed(scope: Scope, conditions: Sequence[Condition]) -> Scope:
    """Return the scope without the tenants that the conditions leave out: nothing need be read to know that."""
    if scope.tenants is None:
        return scope
    left = set(scope.tenants)
    for condition in conditions:
        if condition.operator == "tenant":
            named = {UUID(term.partition(":")[2]) for group in condition.groups for term in group}
            left = left - named if condition.negated else left & named
    return Scope(frozenset(left))


def _without_negation(condition: Condition) -> Condition:
    """Return `-verdict:clean` as every other verdict: an index finds what is there, not what is missing."""
    members = _CLOSED.get(condition.operator)
    if members is None or not condition.negated:
        return condition
    others = {f"{condition.operator}:{member}" for member in members}.difference(*condition.groups)
    return Condition(condition.operator, condition.value, (tuple(sorted(others)),))
