"""Two tenants with users and messages of the last week, and the job of guard with an SMTP server behind it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any
from uuid import UUID

from mailwarden.access.tenant_store import TenantStore
from mailwarden.access.tenants import TenantDirectory
from mailwarden.access.users import NewUser, Position, Role, User, UserStore
from mailwarden.database.pool import Database
from mailwarden.history.opening import open_history
from mailwarden.model.scope import Actor, Scope
from mailwarden.smtp.client import NextHop
from mailwarden.telemetry.metrics import Metrics
from mailwarden.weekly_report.mailing import WeeklyReportMails
from mailwarden.weekly_report.model import Week
from mailwarden.weekly_report.service import open_weekly_reports
from mailwarden.weekly_report.settings import WeeklyReportSettings
from mailwarden.weekly_report.store import MailState, MailStore, SubscriptionStore
from tests.integration.rejecting_sink import RejectingSink

ALL = Scope.deployment()
ROOT = Actor("user:root")
WEEK = Week.before(datetime.now(UTC) + timedelta(days=7))  # the week of today: it has ended when the job runs
MONDAY = WEEK.end + timedelta(hours=6, seconds=1)
SETTINGS = WeeklyReportSettings("reports@north.example", "https://mail.example")


class ReportSink(RejectingSink):
    """An SMTP server that stores reports."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[str, tuple[str, ...], bytes]] = []
        self.reply = "250 2.0.0 Ok"

    async def handle_DATA(self, _: object, __: object, envelope: Any) -> str:  # noqa: N802
        if self.reply.startswith("250"):
            self.taken.append((envelope.mail_from, tuple(envelope.rcpt_tos), envelope.content))
        return self.reply

    @property
    def recipients(self) -> list[str]:
        return sorted(each for _, recipients, _ in self.taken for each in recipients)

    def mails(self) -> list[EmailMessage]:
        return [message_from_bytes(raw, policy=policy.default) for _, _, raw in self.taken]


class ReportSetup:
    def __init__(self, url: str, port: int) -> None:
        self.database = Database(url)
        self.tenants, self.users = TenantStore(self.database), UserStore(self.database)
        self.directory = TenantDirectory(self.tenants)
        self.history = open_history(self.database)
        self.reports = open_weekly_reports(self.database, self.history)
        self.subscriptions, self.mails = SubscriptionStore(self.database), MailStore(self.database)
        self.hop = NextHop(("127.0.0.1", port), 5.0, "guard.example")
        self.north = self.south = UUID(int=0)
        self.now = MONDAY

    def guard(self, hop: NextHop | None = None, metrics: Metrics | None = None) -> WeeklyReportMails:
        return WeeklyReportMails(
            self.mails,
            self.reports,
            hop or self.hop,
            self.directory,
            SETTINGS,
            metrics=metrics or Metrics(),
            clock=lambda: self.now,
        )

    async def user(self, name: str, *tenants: UUID, email: str | None = None, role: Role = Role.ANALYST) -> User:
        address = f"{name}@north.example" if email is None else email
        return await self.users.create(ALL, NewUser(name, Position(role, frozenset(tenants)), address), ROOT)

    async def switch_on(self, tenant: UUID, users: Sequence[User], *, enabled: bool = True) -> None:
        chosen = frozenset(each.uid for each in users)
        await self.subscriptions.save(ALL, tenant, enabled=enabled, recipients=chosen, actor=ROOT)

    async def state(self, tenant: UUID) -> MailState:
        state = await self.subscriptions.mail_state(ALL, tenant, WEEK)
        assert state is not None
        return state
