"""The texts of the policy in the language of the request: sentences of a judgement, rules and tags."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from mailwarden.console.language import current_language, sentence_text
from mailwarden.history.store import Row
from mailwarden.model.outcome import Reason
from mailwarden.model.place import Place, place_text
from mailwarden.model.record import FinishedRequest
from mailwarden.policy.counterfactual import Counterfactual, Without
from mailwarden.policy.languages import Translation, load_translation
from mailwarden.policy.rules import Policy, Rule


def request_in_language(request: FinishedRequest, policy: Policy) -> FinishedRequest:
    """Return the request with the sentences of its judgement in the language of the page."""
    translation = _translation()
    return translation.message(_failures_in_language(request), policy) if translation else request


def change_in_language(change: Counterfactual, request: FinishedRequest, policy: Policy) -> Counterfactual:
    """Return the nearest changes with their reasons in the language of the page."""
    translation = _translation()
    if translation is None:
        return change

    def reasons(those: Sequence[Reason]) -> tuple[Reason, ...]:
        judgement = replace(request.judgement, reasons=tuple(those))
        return translation.message(replace(request, judgement=judgement), policy).judgement.reasons

    def without(each: Without) -> Without:
        return replace(each, reasons=reasons(each.reasons), instead=reasons(each.instead))

    together = without(change.together) if change.together else None
    return replace(change, alone=tuple(map(without, change.alone)), together=together)


def reason_in_language(policy: Policy, row: Row) -> str:
    """Return the strongest reason of a message in a list, in the language of the page."""
    translation = _translation()
    if translation is None or row.request is None:
        return row.reason
    return translation.message(_failures_in_language(row.request), policy).judgement.short


def place_in_language(place: Place) -> str:
    """Return a place in a message in the language of the page."""
    translation = _translation()
    return place_text(place, translation.words.places) if translation else place_text(place)


def rule_in_language(rule: Rule) -> Rule:
    """Return the rule with its texts in the language of the page."""
    translation = _translation()
    return translation.rule(rule) if translation else rule


def tags_in_language(tags: Mapping[str, str]) -> Mapping[str, str]:
    """Return the meanings of tags in the language of the page."""
    translation = _translation()
    return translation.tags(tags) if translation else tags


def _failures_in_language(request: FinishedRequest) -> FinishedRequest:
    """Return the request with the reasons why analyzers did not finish in the language of the page."""
    reports = tuple(
        replace(report, failure=replace(report.failure, sentence=sentence_text(report.failure.sentence)))
        if report.failure
        else report
        for report in request.evidence.reports
    )
    return replace(request, evidence=replace(request.evidence, reports=reports))


def _translation() -> Translation | None:
    return load_translation(current_language().code)
