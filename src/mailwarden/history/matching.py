"""Whether a finished guard request is what a query asks for: the meaning that every store keeps to.

Security: compares hostile texts with a query; linear, and nothing here raises.
"""

from collections.abc import Iterable, Set
from ipaddress import ip_network

from mailwarden.history.operators import Condition
from mailwarden.history.query import Query
from mailwarden.history.terms import fold, plain_address, terms_of
from mailwarden.model.ggrid import moment_of
from mailwarden.model.record import FinishedRequest


def matches(query: Query, request: FinishedRequest) -> bool:
    moment = moment_of(request.ggrid)
    if moment is None or (query.since and moment < query.since) or (query.until and moment >= query.until):
        return False
    found = frozenset(terms_of(request))
    return all(_holds(condition, found, request) for condition in query.conditions)


def phrases_hold(conditions: Iterable[Condition], request: FinishedRequest) -> bool:
    """Tell what the index of terms cannot: whether words stand side by side."""
    found = frozenset(terms_of(request))
    return all(_holds(condition, found, request) for condition in conditions if condition.phrase)


def subject_fits(conditions: Iterable[Condition], subject: str) -> bool:
    """Tell from the subject alone whether `phrases_hold` can; the column of it may be cut or cleaned."""
    folded = " ".join(fold(subject).split())
    return all(
        condition.phrase in folded
        for condition in conditions
        if condition.operator == "subject" and not condition.negated
    )


def _holds(condition: Condition, found: Set[str], request: FinishedRequest) -> bool:
    met = (
        all(not found.isdisjoint(group) for group in condition.groups)
        and (condition.ggrid is None or condition.ggrid == request.ggrid)
        and (not condition.network or _is_inside(request.envelope.remote_address, condition.network))
        and (not condition.phrase or condition.phrase in _text_of(condition, request))
    )
    return met is not condition.negated


def _text_of(condition: Condition, request: FinishedRequest) -> str:
    text = request.summary.from_name if condition.operator == "from" else request.summary.subject
    return " ".join(fold(text).split())


def _is_inside(address: str | None, network: str) -> bool:
    try:
        return address is not None and plain_address(address) in ip_network(network)
    except ValueError:
        return False
