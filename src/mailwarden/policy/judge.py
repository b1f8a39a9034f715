"""Turns evidence into a judgement: the rules that match, the points of each verdict, and the verdict.

Pure: the same evidence and policy give the same judgement, in any order of the findings.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from mailwarden.model.evidence import Evidence, Fact, Finding, Report, Status
from mailwarden.model.outcome import Judgement, Reason, Verdict
from mailwarden.model.place import Place, place_text
from mailwarden.policy.rules import CONVICTION, SUSPICION, Policy, Rule
from mailwarden.policy.sentences import ENGLISH, Wording, clean_body, conclusion, fill, missing_body, sentence

REASONS_PER_RULE = 5
INCOMPLETE_TAG = "analysis.incomplete"
# no analyzer yields it: `_match_rules` adds it once the points make the message bulk
RECOGNISED_BULK = "newsletter.recognised"

CONVICTIONS = (Verdict.MALWARE, Verdict.PHISHING, Verdict.FRAUD, Verdict.SPOOF, Verdict.BLOCKED, Verdict.SPAM)
THREATS = (Verdict.MALWARE, Verdict.PHISHING, Verdict.FRAUD, Verdict.SPOOF, Verdict.SUSPICIOUS)
LEADING = (Verdict.PHISHING, Verdict.FRAUD, Verdict.SPOOF, Verdict.SPAM)  # on a tie the first wins
_ORDER = {verdict: position for position, verdict in enumerate(Verdict)}

Occurrence = tuple[str, Finding]
MatchedRule = tuple[Rule, Reason, str]  # the rule, its reason, and the body of the reason's sentence


def judge(evidence: Evidence, policy: Policy) -> Judgement:
    """Apply every rule whose findings are present, and return the verdict with its reasons."""
    matched = _sorted(_join_leading(_apply_restraints(_match_rules(_present(evidence), policy))))
    points = _points(matched)
    forces_quarantine = any(_forces_quarantine(rule) for rule, _, _ in matched)
    missing = _missing(evidence, forces_quarantine=forces_quarantine)
    incomplete = bool(missing) or not any(report.status is Status.FINISHED for report in evidence.reports)
    verdict = _conclude(points, forces_quarantine=forces_quarantine, incomplete=incomplete)
    summary, headline = _summarise(verdict, matched, points, evidence, missing)
    tags = {reason.tag for _, reason, _ in matched if reason.tag}
    if incomplete:
        tags.add(INCOMPLETE_TAG)
    return Judgement(
        verdict=verdict,
        summary=summary,
        reasons=tuple(reason for _, reason, _ in matched),
        points=points,
        tags=tuple(sorted(tags)),
        incomplete=incomplete,
        forces_quarantine=forces_quarantine,
        headline=headline,
    )


def _forces_quarantine(rule: Rule) -> bool:
    """Return whether a rule prevents delivery, by itself or by the weight that a tenant gave it."""
    return rule.forces_quarantine or (rule.at_least_suspicious and rule.weight >= CONVICTION)


def _points(matched: Iterable[MatchedRule]) -> dict[str, int]:
    points: dict[str, int] = {}
    for _, reason, _ in matched:
        points[reason.verdict] = points.get(reason.verdict, 0) + reason.weight
    return points


def _match_rules(present: dict[str, list[Occurrence]], policy: Policy) -> Sequence[MatchedRule]:
    """Return the reasons of all matching rules; rules about recognised bulk mail are applied last."""
    matched = list(_matches(present, policy))
    if _points(matched).get(Verdict.BULK, 0) >= CONVICTION:
        present_with_bulk = {**present, RECOGNISED_BULK: [("newsletter", Finding(RECOGNISED_BULK))]}
        matched += (
            match
            for rule in policy.rules_by_finding.get(RECOGNISED_BULK, ())
            if _is_match(rule, present_with_bulk)
            for match in _reasons(rule, rule.needs, present_with_bulk)
        )
    return matched


def _apply_restraints(matched: Sequence[MatchedRule]) -> Sequence[MatchedRule]:
    """Apply the rules that restrain others: each removes points only from the reasons that it names.

    The rule with the fewest reasons goes first; a wider rule sees only the points that are left. A rule that removes
    nothing gives no reason.
    """
    if not any(rule.restrains for rule, _, _ in matched):
        return matched
    left = [item for item in matched if not item[0].restrains]
    restraints = [(_restrained_positions(item[0], left), item) for item in matched if item[0].restrains]
    weights_left = {place: left[place][1].weight for positions, _ in restraints for place in positions}
    for positions, (rule, reason, body) in sorted(
        restraints, key=lambda item: (len(item[0]), item[1][0].cap, item[1][0].id)
    ):
        total = sum(weights_left[place] for place in positions)
        # A rule with a cap below CONVICTION and no weight limits the sum to its cap. A rule with a weight subtracts it;
        # if a tenant set that weight to 0, it subtracts nothing.
        taken = min(total, -reason.weight if reason.weight or rule.cap == CONVICTION else total - rule.cap)
        if taken > 0:
            left.append((rule, replace(reason, weight=-taken), body))
            _subtract(taken, positions, weights_left)
    return left


def _subtract(points: int, positions: Iterable[int], weights_left: dict[int, int]) -> None:
    """Subtract points from these reasons in order, at most the weight of each."""
    for place in sorted(positions):
        deducted = min(points, weights_left[place])
        weights_left[place] -= deducted
        points -= deducted


def _restrained_positions(rule: Rule, matched: Sequence[MatchedRule]) -> frozenset[int]:
    """Return the positions of the reasons that a rule restrains; only reasons with positive weight."""
    return frozenset(
        place for place, (other, reason, _) in enumerate(matched) if reason.weight > 0 and other.is_restrained_by(rule)
    )


def _join_leading(matched: Sequence[MatchedRule]) -> Sequence[MatchedRule]:
    """Count the rules with `joinsLeading` for the verdict that leads without them.

    A negative weight reduces the leading verdict only down to a conviction: a conviction by other rules stands.
    """
    joining = [item for item in matched if item[0].joins_leading]
    if not joining:
        return matched
    points = _points(item for item in matched if not item[0].joins_leading)
    leading = max(LEADING, key=lambda verdict: points.get(verdict, 0))
    if points.get(leading, 0) <= 0:
        return matched
    spare = points[leading] - CONVICTION
    joined: list[MatchedRule] = [item for item in matched if not item[0].joins_leading]
    for rule, reason, body in sorted(joining, key=_by_weight):
        weight = reason.weight if spare < 0 else max(reason.weight, -spare)
        spare += weight if spare >= 0 else 0
        joined.append((rule, replace(reason, verdict=leading, weight=weight), body))
    return joined


def _conclude(points: Mapping[str, int], *, forces_quarantine: bool, incomplete: bool) -> Verdict:
    """Return the first verdict that applies, top to bottom."""
    for verdict in CONVICTIONS:  # a conviction does not need the analyzers that failed
        if points.get(verdict, 0) >= CONVICTION:
            return verdict
    if forces_quarantine:
        return Verdict.SUSPICIOUS
    if incomplete:  # never clean, and never suspicious, which may be delivered
        return Verdict.UNKNOWN
    if sum(max(0, points.get(verdict, 0)) for verdict in THREATS) >= SUSPICION:
        return Verdict.SUSPICIOUS
    if points.get(Verdict.BULK, 0) >= CONVICTION:
        return Verdict.BULK
    return Verdict.CLEAN


def _missing(evidence: Evidence, *, forces_quarantine: bool) -> tuple[Report, ...]:
    """Return the required analyzers that did not finish.

    A skipped analyzer counts as missing too, unless a structure limit, which forces quarantine, is the cause.
    """
    return tuple(
        report
        for report in evidence.reports
        if report.required
        and (report.status is not Status.FINISHED or report.failure)
        and not (report.status is Status.SKIPPED and forces_quarantine)
    )


def _present(evidence: Evidence) -> dict[str, list[Occurrence]]:
    present: dict[str, list[Occurrence]] = defaultdict(list)
    for analyzer, finding in evidence.findings:
        present[finding.name].append((analyzer, finding))
    for occurrences in present.values():
        if len(occurrences) > 1:
            occurrences.sort(key=_sort_key)
    return present


def _matches(present: Mapping[str, Sequence[Occurrence]], policy: Policy) -> Iterator[MatchedRule]:
    for name in present:
        for rule in policy.rules_by_finding.get(name, ()):
            if _is_match(rule, present):
                yield from _reasons(rule, rule.needs, present)


def _is_match(rule: Rule, present: Mapping[str, Sequence[Occurrence]]) -> bool:
    """Return whether a rule matches; its first finding is present."""
    if rule.unless and not present.keys().isdisjoint(rule.unless):
        return False
    if rule.any_of and present.keys().isdisjoint(rule.any_of):
        return False
    return isinstance(rule.when, str) or all(need in present for need in rule.when)


def _reasons(
    rule: Rule, needs: tuple[str, ...], present: Mapping[str, Sequence[Occurrence]], words: Wording = ENGLISH
) -> Iterator[MatchedRule]:
    """Yield a reason for each occurrence, up to REASONS_PER_RULE; their weights add up to the rule's points."""
    occurrences = present[needs[0]]
    if len(needs) > 1:  # a combination is one reason with the facts of all its findings
        facts: dict[str, Fact] = {}
        for need in reversed(needs):
            facts.update(present[need][0][1].facts)
        analyzer, first = occurrences[0]
        occurrences = [(analyzer, Finding(first.name, first.place, facts))]
    for position, (analyzer, finding) in enumerate(occurrences[:REASONS_PER_RULE]):
        weight = _weight(rule, position)
        body = fill(rule.summary, finding.facts, finding.place, words)
        yield rule, Reason(rule.id, analyzer, rule.verdict, weight, sentence(body), finding.place, rule.tag), body


def _weight(rule: Rule, position: int) -> int:
    if rule.counts == "each":
        return max(0, min(rule.weight, rule.cap - position * rule.weight))
    return rule.weight if position == 0 else 0


def _summarise(
    verdict: Verdict,
    matched: Sequence[MatchedRule],
    points: Mapping[str, int],
    evidence: Evidence,
    missing: Sequence[Report],
    *,
    words: Wording = ENGLISH,
) -> tuple[str, str]:
    """Return the summary of the verdict, and its strongest reason as a sentence of its own."""
    if verdict is Verdict.UNKNOWN:
        return conclusion(verdict, missing_body(missing, words), words=words), ""
    if verdict is Verdict.CLEAN:
        most, name = max(((count, name) for name, count in points.items()), default=(0, ""))
        highest = (Verdict(name), most) if most > 0 else None
        return conclusion(verdict, clean_body(evidence.reports, highest, CONVICTION, words), words=words), ""
    carrying = _carrying(verdict, matched)
    sums: dict[str, int] = {}
    for rule, reason, _ in carrying:
        sums[rule.topic] = sums.get(rule.topic, 0) + reason.weight
    # A rule that forces quarantine explains it best; otherwise the strongest reason of the heaviest topic does.
    _, _, body = max(
        carrying,
        key=lambda item: (
            verdict is Verdict.SUSPICIOUS and _forces_quarantine(item[0]),
            sums[item[0].topic],
            item[1].weight,
        ),
    )
    return conclusion(verdict, body, len(sums) - 1, words), sentence(body)


def carriers_of(verdict: Verdict) -> tuple[Verdict, ...]:
    """Return the verdicts whose points a verdict rests on."""
    return THREATS if verdict is Verdict.SUSPICIOUS else (verdict,)


def _carrying(verdict: Verdict, matched: Iterable[MatchedRule]) -> Sequence[MatchedRule]:
    """Return the reasons that the verdict rests on."""
    carriers = carriers_of(verdict)
    return [
        (rule, reason, body)
        for rule, reason, body in matched
        if reason.verdict in carriers and (reason.weight > 0 or _forces_quarantine(rule))
    ]


def in_other_words(
    judgement: Judgement, evidence: Evidence, rules: Mapping[str, Rule], summaries: Mapping[str, str], words: Wording
) -> Judgement:
    """Return the judgement with its sentences in another language.

    The facts come from the evidence. A reason keeps its sentence if its rule has no translation, or has changed since
    the message was judged; the summary does if one of its reasons does.
    """
    present = _present(evidence)
    present.setdefault(RECOGNISED_BULK, [("newsletter", Finding(RECOGNISED_BULK))])
    bodies: dict[tuple[str, str, Place], str] = {}
    for name in {reason.rule for reason in judgement.reasons} & rules.keys() & summaries.keys():
        rule = rules[name]
        if all(need in present for need in rule.needs):
            other = replace(rule, summary=summaries[name])
            pairs = zip(_reasons(rule, rule.needs, present), _reasons(other, rule.needs, present, words), strict=True)
            bodies.update(((name, first.summary, first.place), body) for (_, first, _), (_, _, body) in pairs)
    matched: list[MatchedRule] = []
    reasons: list[Reason] = []
    for reason in judgement.reasons:
        body = bodies.get((reason.rule, reason.summary, reason.place))
        reasons.append(replace(reason, summary=sentence(body)) if body else reason)
        if body:
            matched.append((rules[reason.rule], reasons[-1], body))
    verdict, missing = judgement.verdict, _missing(evidence, forces_quarantine=judgement.forces_quarantine)
    explained = verdict in (Verdict.UNKNOWN, Verdict.CLEAN) or (
        len(matched) == len(reasons) and bool(_carrying(verdict, matched))
    )
    summary, headline = (
        _summarise(verdict, matched, judgement.points, evidence, missing, words=words)
        if explained
        else (judgement.summary, judgement.headline)
    )
    return replace(judgement, summary=summary, headline=headline, reasons=tuple(reasons))


def _sort_key(occurrence: Occurrence) -> tuple[str, str, str]:
    analyzer, finding = occurrence
    return analyzer, place_text(finding.place), str(sorted(finding.facts.items()))


def _sorted(matched: Sequence[MatchedRule]) -> Sequence[MatchedRule]:
    """Sort by weight; the place decides only between reasons of one rule."""
    if len({rule.id for rule, _, _ in matched}) == len(matched):
        return sorted(matched, key=_by_weight_alone)
    return sorted(matched, key=_by_weight)


def _by_weight_alone(item: MatchedRule) -> tuple[int, int, str]:
    _, reason, _ = item
    return _ORDER[reason.verdict], -reason.weight, reason.rule


def _by_weight(item: MatchedRule) -> tuple[int, int, str, str, str]:
    _, reason, _ = item
    return _ORDER[reason.verdict], -reason.weight, reason.rule, place_text(reason.place), reason.summary
