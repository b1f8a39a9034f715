"""Weekly reports are sent once, to chosen users of the tenant, and tried again within bounds."""

import asyncio
import re
from datetime import timedelta

import pytest

from mailwarden.access.audit import AuditFilter, AuditStore
from mailwarden.access.users import Position, Role
from mailwarden.database.queue import MAX_ATTEMPTS
from mailwarden.model.scope import Scope
from mailwarden.smtp.client import NextHop
from mailwarden.telemetry.metrics import Metrics
from mailwarden.weekly_report import store as store_module
from mailwarden.weekly_report.store import CLAIM
from tests.integration.held_messages import finished
from tests.integration.weekly_report.report_setup import ALL, MONDAY, ROOT, WEEK, ReportSetup, ReportSink


async def test_no_report_is_sent_unless_switched_on(setup: ReportSetup, sink: ReportSink) -> None:
    await setup.user("ada", setup.north)
    assert await setup.guard().look() == 0
    assert sink.taken == []


async def test_each_chosen_user_gets_the_report_of_the_tenant_once(setup: ReportSetup, sink: ReportSink) -> None:
    ada, bob = await setup.user("ada", setup.north), await setup.user("bob", setup.north, setup.south)
    await setup.user("eve", setup.north)  # not chosen
    await setup.history.save(ALL, [finished(setup.north), finished(setup.south, recipients=("zoe@south.example",))])
    await setup.switch_on(setup.north, [ada, bob])
    assert await setup.guard().look() == 2
    assert sink.recipients == ["ada@north.example", "bob@north.example"]
    assert {sender for sender, _, _ in sink.taken} == {"<>"}, "nothing bounces back to us"
    for mail in sink.mails():
        body = mail.get_body(("plain",))
        assert body is not None
        assert "Weekly report of North" in body.get_content()
        assert "south" not in body.get_content().lower()
        assert mail.get_body(("html",)) is not None
    setup.now += timedelta(days=5)
    assert [await setup.guard().look() for _ in range(2)] == [0, 0], "not twice in one week"
    setup.now = MONDAY + timedelta(days=7)
    assert await setup.guard().look() == 2, "and again the week after"


async def test_not_before_the_hour_and_not_for_the_week_in_which_it_was_switched_on(
    setup: ReportSetup, sink: ReportSink
) -> None:
    await setup.switch_on(setup.north, [await setup.user("ada", setup.north)])
    setup.now = MONDAY - timedelta(seconds=2)
    assert await setup.guard().look() == 0
    setup.now = MONDAY - timedelta(days=7)  # it was switched on after that Monday, whenever the test runs
    assert await setup.guard().look() == 0
    setup.now = MONDAY
    assert await setup.guard().look() == 1


async def test_a_user_who_left_or_is_disabled_gets_no_report(setup: ReportSetup, sink: ReportSink) -> None:
    stays, leaves, disabled = [await setup.user(name, setup.north) for name in ("stays", "leaves", "disabled")]
    await setup.switch_on(setup.north, [stays, leaves, disabled])
    await setup.users.move(ALL, leaves.uid, Position(Role.ANALYST, frozenset([setup.south])), ROOT)
    await setup.users.disable(ALL, disabled.uid, ROOT)
    assert await setup.guard().look() == 1
    assert sink.recipients == ["stays@north.example"]


async def test_a_tenant_that_switched_it_off_gets_none(setup: ReportSetup, sink: ReportSink) -> None:
    ada = await setup.user("ada", setup.north)
    await setup.switch_on(setup.north, [ada])
    await setup.switch_on(setup.north, [ada], enabled=False)
    assert await setup.guard().look() == 0
    assert sink.taken == []


async def test_guards_at_once_send_each_mail_once(setup: ReportSetup, sink: ReportSink) -> None:
    tenants = [(await setup.tenants.create(ALL, f"T{number}")).uid for number in range(12)]
    await setup.directory.refresh()
    for number, tenant in enumerate(tenants):
        await setup.switch_on(tenant, [await setup.user(f"u{number}{each}", tenant) for each in "ab"])
    hops = [NextHop(setup.hop._address, 5.0, f"guard-{number}.example") for number in range(3)]
    sent = await asyncio.gather(*(setup.guard(hop).look() for hop in hops))
    for hop in hops:
        hop.close()
    assert sum(sent) == 24
    assert len(set(sink.recipients)) == len(sink.recipients) == 24


async def test_a_mail_is_claimed_once_and_a_recipient_noted_once(setup: ReportSetup) -> None:
    tenants = [(await setup.tenants.create(ALL, f"T{number}")).uid for number in range(3)]
    users = [await setup.user(f"u{number}", tenant) for number, tenant in enumerate(tenants)]
    for tenant, user in zip(tenants, users, strict=True):
        await setup.switch_on(tenant, [user])
    await setup.mails.prepare(ALL, WEEK, MONDAY, setup.now)
    async with setup.database.connection() as connection, connection.transaction():  # a guard that is claiming
        values = (None, WEEK.monday, setup.now, MAX_ATTEMPTS, setup.now + CLAIM)
        row = await connection.fetchrow(store_module._CLAIM, *values)
        async with asyncio.timeout(60):  # a claim that waits for the row fails before
            jobs = [await setup.mails.claim(ALL, WEEK, setup.now) for _ in range(2)]
            assert await setup.mails.claim(ALL, WEEK, setup.now) is None
    assert row is not None
    assert {row["tenant"], *(each.tenant for each in jobs if each)} == set(tenants)
    assert jobs[0] is not None
    noted = await asyncio.gather(*(setup.mails.begin(ALL, jobs[0], users[0].uid) for _ in range(4)))
    assert sorted(noted) == [False, False, False, True]


async def test_a_rejected_mail_is_tried_again_within_bounds(setup: ReportSetup, sink: ReportSink) -> None:
    ada, bob = await setup.user("ada", setup.north), await setup.user("bob", setup.north)
    await setup.switch_on(setup.north, [ada, bob])
    sink.refused["bob@north.example"] = "450 4.2.0 Not now, bob@north.example"
    metrics = Metrics()
    guard, attempts = setup.guard(metrics=metrics), 0
    for _ in range(200):  # a day of looks
        attempts += await guard.look()
        setup.now += timedelta(minutes=7)
    assert attempts == 1
    assert sink.recipients == ["ada@north.example"], "who has it does not get it again"
    state = await setup.state(setup.north)
    assert (state.attempts, state.sent, state.failure, state.finished) == (MAX_ATTEMPTS, 1, "450 4.2.0", True)
    counted = dict(re.findall(r'mailwarden_weekly_reports_total{outcome="(\w+)"} (\d+)', metrics.page().decode()))
    assert counted == {"sent": "1", "waits": str(MAX_ATTEMPTS - 1), "refused": "1"}


async def test_a_mail_is_sent_when_the_next_hop_is_back(setup: ReportSetup, sink: ReportSink) -> None:
    await setup.switch_on(setup.north, [await setup.user("ada", setup.north)])
    down = NextHop(("127.0.0.1", 1), 1.0, "guard.example")
    assert await setup.guard(down).look() == 0
    assert await setup.guard().look() == 0, "not at once"
    setup.now += timedelta(minutes=11)
    assert await setup.guard().look() == 1
    sink.reply = "451 4.3.0 Disk full"
    setup.now = MONDAY + timedelta(days=7)
    assert await setup.guard().look() == 0
    sink.reply = "250 2.0.0 Ok"
    setup.now += timedelta(minutes=11)
    assert await setup.guard().look() == 1
    assert len(sink.taken) == 2


async def test_a_guard_that_died_leaves_the_rest_to_another(setup: ReportSetup, sink: ReportSink) -> None:
    ada, bob = await setup.user("ada", setup.north), await setup.user("bob", setup.north)
    await setup.switch_on(setup.north, [ada, bob])
    await setup.mails.prepare(ALL, WEEK, MONDAY, setup.now)
    job = await setup.mails.claim(ALL, WEEK, setup.now)
    assert job is not None
    assert await setup.mails.begin(ALL, job, ada.uid)  # and it dies before it knows whether the mail was accepted
    assert await setup.guard().look() == 0, "claimed"
    setup.now += timedelta(minutes=11)
    assert await setup.guard().look() == 1
    assert sink.recipients == ["bob@north.example"], "nobody gets it twice"


async def test_an_address_that_cannot_be_written_stops_no_other(setup: ReportSetup, sink: ReportSink) -> None:
    ada, odd = await setup.user("ada", setup.north), await setup.user("odd", setup.north, email="a<b>@north.example")
    await setup.switch_on(setup.north, [odd, ada])
    assert await setup.guard().look() == 1
    assert sink.recipients == ["ada@north.example"]
    assert (await setup.state(setup.north)).finished


async def test_sending_and_switching_are_in_the_audit_log_of_the_tenant(setup: ReportSetup) -> None:
    await setup.switch_on(setup.north, [await setup.user("ada", setup.north)])
    await setup.guard().look()
    audit = AuditStore(setup.database)
    events = await audit.find(Scope.of(setup.north), AuditFilter())
    (sent, changed) = [each for each in events if each.action.startswith("weekly-report.")]
    assert (sent.action, sent.details["sent"], sent.details["week"]) == ("weekly-report.send", 1, str(WEEK))
    assert (changed.action, changed.actor.name) == ("weekly-report.change", ROOT.name)
    assert not [each for each in await audit.find(Scope.of(setup.south)) if each.action.startswith("weekly-report.")]


@pytest.mark.parametrize("position", [Position(Role.ANALYST), Position(Role.DEPLOYMENT_ADMINISTRATOR)])
async def test_users_of_the_whole_deployment_cannot_be_chosen(setup: ReportSetup, position: Position) -> None:
    everywhere = await setup.user("all", role=position.role)
    assert everywhere.uid not in {each.uid for each in await setup.subscriptions.users(ALL, setup.north)}
    with pytest.raises(Exception, match="no user of this tenant"):
        await setup.switch_on(setup.north, [everywhere])
