"""Reports become cases: with the right message of the right tenant, and with training only by an analyst."""

import asyncio
from datetime import UTC, datetime
from uuid import UUID

import pytest

from mailwarden.database.pool import Database
from mailwarden.errors import CaseClosed, CaseNotFound
from mailwarden.model.scope import Actor, Scope
from mailwarden.user_reports.cases.model import NOT_STORED, AnswerState, CaseOutcome, CaseState, Stored
from mailwarden.user_reports.cases.service import CaseService, Submission
from mailwarden.user_reports.cases.store import _LOCK, _LOCKS
from mailwarden.user_reports.mailbox.report_mail import Original, ReportFormat, ReportMail
from mailwarden.user_reports.reports import Kind, ReportedMessage, UserReport
from mailwarden.user_reports.service import ReportService
from tests.integration.user_reports.cases.case_setup import ALL, ANALYST, SEAL, CaseSetup
from tests.samples import report_mails as mails

BOB, EVE = "bob@acme.example", "eve@acme.example"
FORMATS = {
    "attached": mails.attached(),
    "delivered": mails.attached(b"Received: from mx by mailbox.example; today\r\n" + mails.ORIGINAL),
    "microsoft": mails.microsoft(),
    "google": mails.google(),
    "arf": mails.arf(),
    "arf header": mails.arf(whole=False),
    "inline": mails.inline(),
    "inline without id": mails.inline(("Von", "Betreff"), identifier=False),
}

TEXT = b"Please confirm the delivery address of your parcel at http://parcel-fee.example/pay before tomorrow evening."
KIT = mails.ORIGINAL.replace(TEXT, b"Invoice for consulting services, payable within thirty days to our usual account.")


class Crashing(ReportService):
    """Loses the database before the second message."""

    async def report_contents(
        self, scope: Scope, tenant: UUID, kind: Kind, actor: Actor, *, contents: bytes | ReportedMessage
    ) -> UserReport:
        if await self.reports(scope, tenant):
            raise ConnectionError
        return await super().report_contents(scope, tenant, kind, actor, contents=contents)


def varied(number: int) -> bytes:
    """Return a message that resembles no other."""
    letters = "".join(chr(97 + int(digit)) for digit in str(number))
    words = " ".join(f"{word}{letters}" for word in ("budget", "harbour", "meadow", "lantern", "pepper", "violin"))
    return (
        f"From: s{number}@one{letters}.example\r\nTo: ann@acme.example\r\nSubject: {words}\r\n"
        f"Message-ID: <{number}@one.example>\r\n\r\n{words} {words}\r\n"
    ).encode()


@pytest.mark.parametrize("name", FORMATS)
async def test_a_report_in_each_format_becomes_a_case_with_the_right_ggrid(setup: CaseSetup, name: str) -> None:
    await setup.received(setup.north, recipient="other@acme.example")
    mine = await setup.received(setup.north)
    await setup.received(setup.north, varied(1))
    added = await setup.report(FORMATS[name])
    assert added.stored is Stored.OPENED
    case = (await setup.service.cases(ALL))[0]
    [report] = await setup.service.reports(ALL, case.uid)
    assert (report.ggrid, case.campaign) == (mine.ggrid, mine.campaign and mine.campaign.own)
    assert (case.subject, case.sender) == ("Your parcel waits", "service@parcel.example")
    assert setup.scans == (name == "delivered")


async def test_the_original_is_found_in_the_reporters_tenant_alone(setup: CaseSetup) -> None:
    await setup.received(setup.south)
    added = await setup.report(mails.attached())
    assert added.case is not None
    [report] = await setup.service.reports(ALL, added.case)
    assert report.ggrid is None
    south = Scope.of(setup.south)
    assert await setup.service.cases(south) == []
    assert await setup.service.reports(south, added.case) == []
    with pytest.raises(CaseNotFound):
        await setup.service.find(south, added.case)
    with pytest.raises(CaseNotFound):
        await setup.service.close(south, added.case, CaseOutcome.SPAM, ANALYST)


async def test_a_message_id_counts_only_with_its_sender(setup: CaseSetup) -> None:
    await setup.received(setup.north)
    forged = mails.ORIGINAL.replace(b"service@parcel.example>\r\nTo", b"boss@acme.example>\r\nTo")
    added = await setup.report(mails.attached(forged))
    assert added.case is not None
    assert [each.ggrid for each in await setup.service.reports(ALL, added.case)] == [None]


async def test_bytes_under_the_message_id_of_another_message_are_not_learned(setup: CaseSetup) -> None:
    mine = await setup.received(setup.north)
    added = await setup.report(mails.attached(KIT))
    assert added.case is not None
    [report] = await setup.service.reports(ALL, added.case)
    assert (report.ggrid, report.digest, report.kept) == (mine.ggrid, None, False)
    await setup.service.close(ALL, added.case, CaseOutcome.HARMLESS, ANALYST)
    [kept] = await setup.training.page(ALL, setup.north)
    assert (kept.kind, kept.ggrid, kept.state) == (Kind.GOOD, mine.ggrid, "not-stored")
    [report] = await setup.service.reports(ALL, added.case)
    assert report.trained_as == NOT_STORED


async def test_bytes_join_no_case_by_the_header_that_they_claim(setup: CaseSetup) -> None:
    first = await setup.report(mails.attached())
    claimed = await setup.report(mails.attached(KIT, sender=BOB))
    shown = await setup.report(mails.arf(whole=False, sender=EVE))
    assert {each.stored for each in (first, claimed, shown)} == {Stored.OPENED}
    assert len({each.case for each in (first, claimed, shown)}) == 3
    again = await setup.report(mails.inline(sender=BOB))  # it has no bytes either
    assert (again.stored, again.case) == (Stored.JOINED, shown.case)


async def test_a_near_duplicate_that_history_does_not_have_joins_the_case(setup: CaseSetup) -> None:
    await setup.received(setup.north)
    first = await setup.report(mails.attached())
    near = mails.ORIGINAL.replace(b"parcel-1@", b"parcel-77@").replace(b"tomorrow evening", b"Friday evening")
    second = await setup.report(mails.attached(near, sender=BOB))
    other = await setup.report(mails.attached(varied(5), sender=BOB))
    assert (second.stored, second.case) == (Stored.JOINED, first.case)
    assert other.stored is Stored.OPENED
    assert setup.scans == 2


async def test_a_second_delivery_and_a_repeated_report_add_nothing(setup: CaseSetup) -> None:
    await setup.received(setup.north)
    first = await setup.report(mails.attached())
    again = [
        await setup.report(mails.attached()),
        await setup.report(mails.inline()),
        await setup.report(mails.google()),
    ]
    assert {(each.stored, each.case) for each in again} == {(Stored.REPEATED, first.case)}
    assert (await setup.service.cases(ALL))[0].reports == 1


async def test_unverified_reports_count_for_nothing(setup: CaseSetup) -> None:
    await setup.received(setup.north)
    for sender in (mails.REPORTER, BOB, EVE):
        added = await setup.report(mails.attached(sender=sender), verified=False)
        assert (added.stored, added.case) == (Stored.UNVERIFIED, None)
    assert await setup.service.cases(ALL) == []
    assert len(await setup.service.unverified(Scope.of(setup.north))) == 3
    assert await setup.service.unverified(Scope.of(setup.south)) == []
    assert await setup.training.page(ALL, setup.north) == []


async def test_reporters_who_agree_give_priority_and_teach_nothing(setup: CaseSetup) -> None:
    await setup.received(setup.north)
    first = await setup.report(mails.attached())
    later = await setup.report(mails.attached(varied(3)))
    assert [each.uid for each in await setup.service.cases(ALL)] == [later.case, first.case]

    same_person = await setup.report(mails.microsoft(sender="ann+second@acme.example"))
    assert (same_person.stored, same_person.case) == (Stored.REPEATED, first.case)
    await setup.report(mails.google(sender=BOB))
    await setup.report(mails.attached(varied(4)))
    page = await setup.service.cases(ALL, limit=1)
    assert [(each.uid, each.agreed, each.reporters) for each in page] == [(first.case, Kind.PHISHING, 2)]
    rest = await setup.service.cases(ALL, before=page[0].cursor)
    assert [each.agreed for each in rest] == [None, None]
    assert await setup.training.page(ALL, setup.north) == []

    await setup.report(mails.microsoft(action=2, sender=EVE))
    assert {each.agreed for each in await setup.service.cases(ALL)} == {None}


async def test_claims_of_a_message_id_are_no_agreement(setup: CaseSetup) -> None:
    for sender in (mails.REPORTER, BOB, EVE):
        await setup.report(mails.arf(whole=False, sender=sender))
    [case] = await setup.service.cases(ALL)
    assert (case.reporters, case.agreed) == (3, None)


async def test_sub_addresses_share_the_limit_of_a_day(setup: CaseSetup) -> None:
    senders = [f"ann+{number}@acme.example" for number in range(3)]
    added = [
        await setup.report(mails.attached(varied(number), sender=sender), per_day=2)
        for number, sender in enumerate(senders)
    ]
    assert [each.stored for each in added] == [Stored.OPENED, Stored.OPENED, Stored.LIMITED]


async def test_one_report_gets_one_answer_in_a_case(setup: CaseSetup) -> None:
    near = mails.ORIGINAL.replace(b"parcel-1@", b"parcel-77@").replace(b"tomorrow evening", b"Friday evening")
    parts = [b"Content-Type: message/rfc822\r\n\r\n" + each for each in (mails.ORIGINAL, near)]
    added = await setup.report_all(mails.mixed("Fwd", *parts))
    assert [each.stored for each in added] == [Stored.OPENED, Stored.JOINED]
    assert added[0].case is not None
    reports = await setup.service.reports(ALL, added[0].case)
    assert [each.answer for each in reports] == [AnswerState.WANTED, AnswerState.NONE]


async def test_one_person_does_not_agree_with_himself(setup: CaseSetup) -> None:
    await setup.received(setup.north)
    first = await setup.report(mails.attached())
    for number in (2, 3):
        near = mails.ORIGINAL.replace(b"parcel-1@", b"parcel-%d@" % number)
        added = await setup.report(mails.attached(near))
        assert (added.stored, added.case) == (Stored.JOINED, first.case)
    assert [each.agreed for each in await setup.service.cases(ALL)] == [None]
    assert await setup.training.page(ALL, setup.north) == []


async def test_a_thousand_reports_of_one_person_teach_nothing(setup: CaseSetup, database: Database) -> None:
    mine = await setup.received(setup.north)
    await setup.report(mails.attached())
    counted = [await setup.report(mails.arf(varied(number), whole=False)) for number in range(999)]
    assert sum(each.stored is Stored.OPENED for each in counted) == 49
    assert sum(each.stored is Stored.LIMITED for each in counted) == 950
    assert await setup.training.page(ALL, setup.north) == []
    assert await setup.training.statuses(ALL) == []
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM relationships") == 0
        assert await connection.fetchval("SELECT count(*) FROM case_reports") == 50
    assert await setup.history.find(ALL, mine.ggrid) == mine


async def test_closing_teaches_the_outcome_and_answers_each_report_once(setup: CaseSetup) -> None:
    mine = await setup.received(setup.north)
    added = await setup.report(mails.attached(b"Received: by mailbox\r\n" + mails.ORIGINAL))
    await setup.report(mails.arf(sender="feedback@acme.example", whole=False))
    assert added.case is not None
    assert await setup.store.claim_answer(ALL, datetime.now(UTC)) is None
    case = await setup.service.close(Scope.of(setup.north), added.case, CaseOutcome.HARMLESS, ANALYST)
    assert (case.state, case.outcome, case.closed_by) == (CaseState.CLOSED, CaseOutcome.HARMLESS, "user:ada")
    trained = await setup.training.page(ALL, setup.north)
    assert {(each.kind, each.ggrid, each.state) for each in trained} == {
        (Kind.GOOD, mine.ggrid, "not-stored"),
        (Kind.GOOD, None, "waiting"),  # the bytes as the mailbox had them
    }
    with pytest.raises(CaseClosed):
        await setup.service.close(ALL, added.case, CaseOutcome.SPAM, ANALYST)
    now = datetime.now(UTC)
    answer = await setup.store.claim_answer(ALL, now)
    assert answer is not None
    assert (answer.reporter, answer.outcome) == (mails.REPORTER, CaseOutcome.HARMLESS)
    assert await setup.store.claim_answer(ALL, now) is None  # a feedback report is automatic: it gets none
    await setup.store.settle_answer(ALL, answer, AnswerState.SENT)
    assert await setup.store.claim_answer(ALL, now) is None
    reports = await setup.service.reports(ALL, added.case)
    assert [(each.answer, each.kept) for each in reports] == [(AnswerState.SENT, False), (AnswerState.NONE, False)]
    assert [each.trained_as for each in reports] == ["good", NOT_STORED]  # the second one has only a header
    assert (await setup.report(mails.google())).stored is Stored.OPENED


async def test_closing_again_learns_what_a_crash_left_out(setup: CaseSetup, database: Database) -> None:
    added = await setup.report(mails.attached())
    assert added.case is not None
    near = mails.ORIGINAL.replace(b"parcel-1@", b"parcel-77@").replace(b"tomorrow evening", b"Friday evening")
    await setup.report(mails.attached(near, sender=BOB))
    crashing = CaseService(setup.store, setup.history, Crashing(setup.training, setup.history, SEAL), SEAL)
    with pytest.raises(ConnectionError):
        await crashing.close(ALL, added.case, CaseOutcome.SPAM, ANALYST)
    assert len(await setup.training.page(ALL, setup.north)) == 1
    with pytest.raises(CaseClosed):
        await setup.service.close(ALL, added.case, CaseOutcome.HARMLESS, ANALYST)
    for _ in range(2):
        await setup.service.close(ALL, added.case, CaseOutcome.SPAM, ANALYST)
    assert [each.kind for each in await setup.training.page(ALL, setup.north)] == [Kind.SPAM] * 2
    reports = await setup.service.reports(ALL, added.case)
    assert [(each.trained_as, each.answer, each.kept) for each in reports] == [("spam", AnswerState.DUE, False)] * 2
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM audit WHERE action = 'cases.close'") == 1


async def test_closing_waits_for_a_report_that_is_being_stored(setup: CaseSetup, database: Database) -> None:
    added = await setup.report(mails.attached())
    assert added.case is not None
    async with database.connection() as connection, connection.transaction():
        await connection.execute(_LOCK, _LOCKS, str(setup.north))
        closing = asyncio.create_task(setup.service.close(ALL, added.case, CaseOutcome.SPAM, ANALYST))
        await asyncio.sleep(0.3)
        assert (await setup.service.find(ALL, added.case)).state is CaseState.OPEN
    assert (await closing).state is CaseState.CLOSED


async def test_a_report_that_is_delivered_again_needs_no_room(setup: CaseSetup) -> None:
    first = await setup.report(mails.attached(), per_day=1)
    again = await setup.report(mails.attached(), per_day=1)
    other = await setup.report(mails.attached(varied(1)), per_day=1)
    assert (again.stored, again.case, other.stored) == (Stored.REPEATED, first.case, Stored.LIMITED)


@pytest.mark.parametrize("verified", [True, False])
async def test_texts_that_postgresql_cannot_hold_are_stored_with_replacements(
    setup: CaseSetup, *, verified: bool
) -> None:
    originals = (
        Original("<a\0b@one.example>", "Pay\0now \ud800", "x\0y@one.example"),
        Original("", "Pay\0now", "x\0y@one.example"),
    )
    mail = ReportMail(ReportFormat.INLINE, "an\0n@acme.example", None, originals)
    submission = Submission(setup.north, b"d" * 32, mail, verified, Kind.PHISHING)
    added = await setup.service.submit(submission, setup.scan)
    stored = Stored.OPENED if verified else Stored.UNVERIFIED
    assert [each.stored for each in added] == [stored, stored]


async def test_old_cases_are_deleted(setup: CaseSetup) -> None:
    await setup.report(mails.attached())
    assert await setup.store.delete_old(Scope.of(setup.south), datetime.now(UTC)) == 0
    assert await setup.store.delete_old(ALL, datetime.now(UTC)) == 1
    assert await setup.service.cases(ALL) == []
