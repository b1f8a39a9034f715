"""Several tenants and one answer, for clients that carry it out themselves; and what Rspamd's clients are shown."""

import json
from collections.abc import Sequence
from typing import Any, cast
from uuid import UUID

import pytest
from msgspec.structs import replace

from mailwarden.crypto.keyring import KeyRing
from mailwarden.errors import BadRequest, EngineUnavailable, InternalError, Overloaded
from mailwarden.guard.sources import rspamd_api
from mailwarden.guard.sources.rspamd_answer import Answer, PerTenantScan, ScanAnswer, answer_to, join, make_answer
from mailwarden.model.envelope import Envelope
from mailwarden.model.outcome import Decision, Reason, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scan import Scan
from mailwarden.model.tenant import AssignedBy, Assignment, RecipientGroup
from mailwarden.quarantine.result_headers import OWN, ResultSeal, result_fields
from mailwarden.scan.shared_answer import Part
from mailwarden.serving.spool import Spooled
from tests.samples.finished import finished_request, part_of

D, Q, B, U, X = Decision.DELIVER, Decision.QUARANTINE, Decision.BOUNCE, Decision.UNDECIDED, Decision.DROP
RAW = Spooled.of(b"Subject: x\r\nX-Mailwarden-Verdict: clean\r\n\r\ntext\r\n")


def finished(decision: Decision, verdict: Verdict = Verdict.SPAM, *tags: str) -> FinishedRequest:
    request = finished_request()
    judgement = replace(request.judgement, verdict=verdict)
    return replace(request, judgement=judgement, ruling=replace(request.ruling, decision=decision, tags=tags))


class Tenants:
    """Every recipient has a tenant of its own."""

    def group(self, _: object, recipients: Sequence[str]) -> tuple[RecipientGroup, ...]:
        return tuple(
            RecipientGroup(Assignment(UUID(int=int(each)), AssignedBy.DOMAINS), (each,)) for each in recipients
        )


class Judge:
    def __init__(self, outcomes: list[Decision | Exception]) -> None:
        self._outcomes = iter(outcomes)
        self.kept: list[Decision] = []

    async def judge(self, scan: Scan) -> list[Part]:
        parts = []
        for group, outcome in zip(scan.groups, self._outcomes, strict=True):
            if isinstance(outcome, Exception):
                raise outcome
            part = replace(finished(outcome), tenant=group.tenant)
            parts.append(part_of(part))
        return parts

    async def keep(self, parts: Sequence[Part]) -> None:
        self.kept += [each.finished.ruling.decision for each in parts]


@pytest.mark.parametrize(
    ("outcomes", "reported"),
    [([D], [D]), ([D, Q], [Q, D]), ([Q, U, D], [U]), ([U, U], [U, U])],
)
async def test_history_stores_undecided_but_no_deferred_messages(
    outcomes: list[Decision | Exception], reported: list[Decision]
) -> None:
    judge = Judge(outcomes)
    await scan_per_tenant(judge, len(outcomes))
    assert judge.kept == reported


async def test_history_stores_nothing_when_one_scan_fails() -> None:
    judge = Judge([D, EngineUnavailable("clamav")])
    with pytest.raises(EngineUnavailable):
        await scan_per_tenant(judge, 2)
    assert judge.kept == []


async def scan_per_tenant(judge: Judge, tenants: int) -> None:
    source = PerTenantScan(
        "rspamdApi", processing=cast("Any", judge), tenants=cast("Any", Tenants()), quarantine_as="reject"
    )
    await source.scan(Envelope("", tuple(map(str, range(tenants)))), RAW)


@pytest.mark.parametrize(
    ("decisions", "quarantine_as", "answer"),
    [
        ([D], Answer.REJECT, Answer.PASS),
        ([D, Q], Answer.REJECT, Answer.REJECT),
        ([D, Q], Answer.MARK, Answer.MARK),
        ([D, B], Answer.MARK, Answer.REJECT),
        ([D, Q, U], Answer.REJECT, Answer.RETRY),
        ([B, U], Answer.REJECT, Answer.RETRY),
        ([X], Answer.REJECT, Answer.DISCARD),
        ([X, X], Answer.REJECT, Answer.DISCARD),
        ([X, D], Answer.REJECT, Answer.REJECT),  # else one tenant's rule would make another's message vanish
        ([Q, D], Answer.DISCARD, Answer.REJECT),
        ([Q, Q], Answer.DISCARD, Answer.DISCARD),
    ],
)
def test_the_strictest_answer_is_given(decisions, quarantine_as, answer) -> None:
    assert join([part_of(finished(decision)) for decision in decisions], quarantine_as).answer is answer


def test_a_warning_is_a_mark_and_malware_is_never_delivered_with_one() -> None:
    assert answer_to(finished(D, Verdict.SUSPICIOUS, "policy.warn"), Answer.REJECT) is Answer.MARK
    assert answer_to(finished(Q, Verdict.MALWARE), Answer.MARK) is Answer.REJECT
    assert answer_to(finished(Q, Verdict.SPAM), Answer.MARK) is Answer.MARK


def test_the_part_that_leads_is_the_one_that_the_answer_comes_from() -> None:
    parts = [part_of(finished(D)), part_of(finished(Q, Verdict.PHISHING))]
    leading = join(parts, Answer.REJECT).leading
    assert (leading.ruling.decision, leading.judgement.verdict) == (Q, Verdict.PHISHING)


@pytest.mark.parametrize(
    ("answer", "action", "low", "high"),
    [
        (Answer.PASS, "no action", -100.0, 7.49),
        (Answer.MARK, "add header", 7.5, 14.99),
        (Answer.REJECT, "reject", 15.0, 100.0),
        (Answer.DISCARD, "discard", 15.0, 100.0),
        (Answer.RETRY, "soft reject", -100.0, 7.49),
    ],
)
@pytest.mark.parametrize("weights", [(), (10,), (60, 70), (120, -20)])
def test_the_score_matches_the_action_and_sums_the_symbols(answer, action, low, high, weights) -> None:
    reasons = tuple(Reason(f"html.rule-{n}", "html", Verdict.SPAM, weight, "why") for n, weight in enumerate(weights))
    request = finished(D)
    request = replace(request, judgement=replace(request.judgement, reasons=reasons))

    made = make_answer(ScanAnswer(answer, request), [])

    assert (made.action, made.is_skipped, made.required_score) == (action, False, 15.0)
    assert low <= made.score <= high
    assert sum(symbol.score for symbol in made.symbols.values()) == pytest.approx(made.score)
    assert {f"MW_HTML_RULE_{n}" for n in range(len(weights))} < set(made.symbols)
    assert all(name == symbol.name for name, symbol in made.symbols.items())
    assert ("smtp_message" in made.messages) == (action in ("reject", "soft reject"))


@pytest.mark.parametrize(
    ("decision", "said"), [(Q, "Refused: blocked ("), (B, "Refused: blocked ("), (U, "The message ")]
)
def test_the_reply_names_the_verdict_and_no_list_entry(decision: Decision, said: str) -> None:
    request = finished(decision, Verdict.BLOCKED)
    request = replace(request, judgement=replace(request.judgement, summary="Blocked: by the tenant entry secret."))
    appraisal = join([part_of(request)], Answer.REJECT)
    reported = make_answer(appraisal, []).messages["smtp_message"]
    assert reported.startswith(said)
    assert reported.endswith(f"({request.ggrid})")
    assert "secret" not in reported


async def test_the_fields_can_be_put_on_top_one_after_the_other_and_are_signed() -> None:
    seal, request = ResultSeal(KeyRing.of(b"k" * 32)), finished(D)
    fields = await result_fields(seal, request, RAW)
    made = make_answer(ScanAnswer(Answer.PASS, request), fields)

    message = RAW.data().replace(b"X-Mailwarden-Verdict: clean\r\n", b"")
    for name, added in made.milter.add_headers.items():  # as Postfix does with a milter's: below its own first line
        assert added.order == 1
        message = f"{name}: {added.value}\r\n".encode("ascii") + message
    result = seal.read(message)
    assert result is not None
    assert (result.ggrid, result.decision) == (request.ggrid, "deliver")
    assert set(made.milter.remove_headers) == set(OWN) > {name for name, _ in fields}


async def test_a_message_of_bare_line_feeds_has_fields_too() -> None:
    assert (
        len(await result_fields(ResultSeal(KeyRing.of(b"k" * 32)), finished(D), Spooled.of(b"Subject: x\n\ntext\n")))
        == 5
    )


def test_no_error_answer_of_the_rspamd_api_reads_as_clean() -> None:
    for error, status in ((Overloaded("x"), 200), (InternalError("x"), 200), (BadRequest("x"), 400)):
        answer = rspamd_api.answer_error(error)
        assert answer.status == status
        assert json.loads(answer.body)["action"] == "soft reject"  # type: ignore[arg-type]
