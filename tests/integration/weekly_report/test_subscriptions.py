"""Who receives the weekly report is changed within a scope, and the figures of a week stay within the tenant."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from mailwarden.errors import SchemaViolation, TenantNotFound
from mailwarden.model.scope import Scope
from mailwarden.weekly_report.model import Week
from mailwarden.weekly_report.store import ActionsStore, MailJob
from tests.integration.weekly_report.report_setup import ALL, ROOT, WEEK, ReportSetup

RECORD = "SELECT record_deed('user:x', $1, $2, 's', NULL, '', $3)"


async def test_another_tenant_is_neither_shown_nor_changed(setup: ReportSetup) -> None:
    ada = await setup.user("ada", setup.north)
    await setup.switch_on(setup.north, [ada])
    foreign = Scope.of(setup.south)
    (tenant,) = await setup.tenants.list(Scope.of(setup.north))
    job = MailJob(setup.north, WEEK, 1)
    for call in (
        setup.subscriptions.find(foreign, setup.north),
        setup.subscriptions.users(foreign, setup.north),
        setup.subscriptions.mail_state(foreign, setup.north, WEEK),
        setup.subscriptions.save(foreign, setup.north, enabled=False, recipients=frozenset(), actor=ROOT),
        setup.reports.build(foreign, tenant, WEEK),
        ActionsStore(setup.database).read(foreign, setup.north, WEEK),
        setup.mails.recipients(foreign, job),
        setup.mails.begin(foreign, job, ada.uid),
        setup.mails.finish(foreign, job, datetime.now(UTC)),
    ):
        with pytest.raises(TenantNotFound):
            await call
    assert (await setup.subscriptions.find(ALL, setup.north)).enabled
    assert await setup.mails.claim(foreign, WEEK, setup.now) is None


async def test_recipients_outside_the_scope_stay_chosen(setup: ReportSetup) -> None:
    ada, both = await setup.user("ada", setup.north), await setup.user("both", setup.north, setup.south)
    await setup.switch_on(setup.north, [both])
    own = Scope.of(setup.north)
    assert [each.name for each in await setup.subscriptions.users(own, setup.north)] == ["ada"]
    saved = await setup.subscriptions.save(own, setup.north, enabled=True, recipients=frozenset([ada.uid]), actor=ROOT)
    assert saved.recipients == {ada.uid, both.uid}
    with pytest.raises(SchemaViolation, match="no user of this tenant"):
        await setup.subscriptions.save(own, setup.north, enabled=True, recipients=frozenset([both.uid]), actor=ROOT)


async def test_it_needs_a_recipient_with_an_address(setup: ReportSetup) -> None:
    silent = await setup.user("silent", setup.north, email="")
    for recipients in (frozenset(), frozenset([silent.uid]), frozenset([uuid4()])):
        with pytest.raises(SchemaViolation):
            await setup.subscriptions.save(ALL, setup.north, enabled=True, recipients=recipients, actor=ROOT)
    with pytest.raises(TenantNotFound):
        await setup.subscriptions.save(ALL, uuid4(), enabled=False, recipients=frozenset(), actor=ROOT)


async def test_the_figures_of_users_are_those_of_the_tenant_and_week(setup: ReportSetup) -> None:
    now = datetime.now(UTC)
    async with setup.database.connection() as connection:
        for tenant, times in ((setup.north, 1), (setup.south, 5)):
            for action, count in (("lists.add", 3), ("lists.expire", 1), ("quarantine.delete", 2)):
                for number in range(count * times):
                    await connection.execute(RECORD, tenant, action, f'{{"uid": "{number}"}}')
    actions = ActionsStore(setup.database)
    week = Week(WEEK.monday)
    own = await actions.read(Scope.of(setup.north), setup.north, week)
    assert (own.list_changes, own.deleted, own.released, own.held, own.reported) == (3, 2, 0, 0, {})
    assert week.begin <= now < week.end
    before = await actions.read(Scope.of(setup.north), setup.north, week.earlier())
    assert (before.list_changes, before.deleted) == (0, 0)


async def test_figures_that_take_too_long_are_unknown(setup: ReportSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mailwarden.weekly_report.store.SECONDS", 1)
    monkeypatch.setattr("mailwarden.weekly_report.store._HELD", "SELECT count(*) + length(pg_sleep(9)::text) FROM "
                        "quarantine WHERE tenant = $1 AND $2::timestamptz < $3::timestamptz")  # fmt: skip
    found = await ActionsStore(setup.database).read(ALL, setup.north, WEEK)
    assert (found.complete, found.held, found.list_changes) == (False, None, None)
