"""Seeds the demo: every message goes through guard's own scan source in the order of time, and people act on it.

So the product itself makes sender history, campaigns, rows of history, held messages, cases, events and the audit log.
`clock` moves the time; `engines` has the sender checks of the stories.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from pathlib import Path
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.access.tenant_store import TenantSettings, TenantStore
from mailwarden.access.users import NewUser, Position, Role, UserStore
from mailwarden.console.first_steps import StepName
from mailwarden.database.pool import Database
from mailwarden.demo.clock import Clock, moved_clock
from mailwarden.demo.engines import away, story_engines, told
from mailwarden.demo.mail import report, write
from mailwarden.demo.stories import (
    After,
    Book,
    FeedStory,
    FeedUpdate,
    ListChange,
    Outage,
    Person,
    Planned,
    moment_of,
    plan,
)
from mailwarden.demo.stories import address_of as address_in
from mailwarden.errors import CommandError, MailwardenError
from mailwarden.event_delivery.addresses import AddressRules
from mailwarden.feeds.assembly import COMMAND_SECONDS, CONNECTIONS, open_feeds
from mailwarden.feeds.http_client import open_http, trust_of
from mailwarden.feeds.job import FeedJob
from mailwarden.feeds.model import FeedFormat, FeedSettings, UpdateState
from mailwarden.feeds.service import FeedService
from mailwarden.guard.app import Guard, open_context, read_config
from mailwarden.guard.background import JobParts, open_releases
from mailwarden.guard.context import GuardContext, MailParts, open_mail
from mailwarden.guard.sources.smtp import Smtp, smtp_source
from mailwarden.history.opening import open_history
from mailwarden.history.store import HistoryStore
from mailwarden.lists.requests import ListEntryInput
from mailwarden.lists.service import ListService
from mailwarden.lists.store import ListScope, ListStore
from mailwarden.model.envelope import domain_of
from mailwarden.model.scope import Actor, Scope
from mailwarden.policy.rules import load_policy
from mailwarden.quarantine.model import BY_RECIPIENT
from mailwarden.quarantine.release import ReleaseJob
from mailwarden.quarantine.service import QuarantineService
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.serving.spool import Spooled
from mailwarden.smtp.commands import Forwarded, Recipient, Sender
from mailwarden.smtp.session import Transaction
from mailwarden.telemetry.metrics import Metrics
from mailwarden.user_reports.cases.model import CaseOutcome
from mailwarden.user_reports.cases.service import CaseService
from mailwarden.user_reports.cases.store import CaseStore
from mailwarden.user_reports.reports import ContentsSeal, Kind
from mailwarden.user_reports.service import ReportService
from mailwarden.user_reports.store import ReportStore
from mailwarden.weekly_report.store import SubscriptionStore

ALL = Scope.deployment()
BEGIN = timedelta(days=16)  # before now: when the deployment was set up
PARALLEL = 6  # scans at once
BATCH = 16  # messages before the clock of the database moves on
BATCH_HOURS = timedelta(hours=3)
PATIENCE = 60.0  # seconds for lists, history or an engine's state to follow
RETRY = timedelta(minutes=3)  # after an outage the sending server tries again
_GGRID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_STORED = "SELECT count(DISTINCT ggrid) FROM history WHERE ggrid = ANY ($1::uuid[])"

Step = tuple[datetime, Planned | Callable[[], Awaitable[None]]]
Say = Callable[[str], None]


class Seeded(Struct, frozen=True):
    """The figures of a seeding."""

    messages: int
    actions: int
    skipped: tuple[str, ...]  # actions that were not possible
    seconds: float


def report_address(domain: str, kind: str) -> str:
    return f"report-{kind}@{domain}"


async def seed(folder: Path, database: str, book: Book, say: Say) -> Seeded:
    """Fill the empty database of this name with the stories; the configuration is in the folder."""
    began, now = time.monotonic(), datetime.now(UTC)
    config = read_config(folder)
    messages = plan(book, now)
    async with (
        moved_clock(config.database.url, database, now - BEGIN) as clock,
        open_context(config, folder, Metrics(), story_engines(config)) as (guard, context),
    ):
        with open_mail(context, guard.name) as mail:
            assert mail is not None  # the demo's configuration has the scan source smtp
            seeder = Seeder(book, clock, guard, context, mail)
            await seeder.set_up()
            await seeder.run(seeder.steps(messages, now), say)
            await clock.move(now)
    own = Database(config.database.url, 1, COMMAND_SECONDS)
    try:
        await open_history(own).update_rollups(ALL)
    finally:
        await own.close()
    return Seeded(len(messages), seeder.actions, tuple(seeder.skipped), time.monotonic() - began)


class Seeder:
    """Does one step of the stories after the other with the services of the product."""

    def __init__(self, book: Book, clock: Clock, guard: Guard, context: GuardContext, mail: MailParts) -> None:
        database = context.database
        self._book, self._clock, self._guard, self._context = book, clock, guard, context
        self._smtp: Smtp = smtp_source(context, mail)
        self._mail = mail
        self._history: HistoryStore = open_history(database)
        self._tenants, self._users = TenantStore(database), UserStore(database)
        self._lists = ListService(ListStore(database, database))
        self._quarantine = QuarantineService(QuarantineStore(database), mail.vault, self._lists, context.spool)
        seal = ContentsSeal(mail.key)
        self._reports = ReportService(ReportStore(database), self._history, seal)
        self._cases = CaseService(CaseStore(database), self._history, self._reports, seal)
        [job] = open_releases(JobParts(context, mail))
        self._releases: ReleaseJob = job
        self._places: dict[str, UUID] = {}  # tenants by their name in stories
        self._ggrids: dict[int, UUID] = {}
        self._unstored: list[UUID] = []
        self._retries: list[Planned] = []
        self._changed_at: float | None = None  # when a list changed that scans do not know yet
        self.actions = 0
        self.skipped: list[str] = []

    async def set_up(self) -> None:
        """Create tenants and users; the first tenant takes the place of the default one."""
        people, nora = self._book.people, Actor(f"user:{self._book.people.users[0].name}")
        default = next(tenant for tenant in await self._tenants.list(ALL) if tenant.is_default)
        for number, tenant in enumerate(people.tenants):
            name, domains, profile, digest = tenant.display, tenant.domains, tenant.profile, tenant.digest
            if number == 0:
                settings = TenantSettings(name, domains, profile, quarantine_digest=digest)
                made = await self._tenants.change(ALL, default.uid, settings, nora)
            else:
                made = await self._tenants.create(ALL, name, domains, profile, quarantine_digest=digest, actor=nora)
            self._places[tenant.name] = made.uid
        subscriptions = SubscriptionStore(self._context.database)
        for user in people.users:
            tenants = frozenset(self._places[name] for name in user.tenants)
            new = NewUser(user.name, Position(user.role, tenants), user.address)
            uid = (await self._users.create(ALL, new, nora)).uid
            await self._users.set_language(ALL, uid, user.language)
            await self._users.hide_steps(ALL, uid, frozenset(StepName))
            if new.position.role is Role.TENANT_ADMINISTRATOR:
                for place in tenants:
                    await subscriptions.save(ALL, place, enabled=True, recipients=frozenset({uid}), actor=nora)
        await self._context.tenants.refresh()

    def steps(self, messages: Sequence[Planned], now: datetime) -> list[Step]:
        """Return everything that happens, in the order of time."""
        people = self._book.people
        steps: list[Step] = [(message.moment, message) for message in messages]
        for message in messages:
            for after in message.after:
                moment = min(message.moment + timedelta(hours=after.hours), now)
                steps.append((moment, partial(self._act, message, after)))
        steps += [(moment_of(change.days, now), partial(self._change_list, change)) for change in people.lists]
        for feed in people.feeds:
            steps += [
                (moment_of(update.days, now), partial(self._update_feed, feed, update)) for update in feed.updates
            ]
        for outage in people.outages:
            begin = _begin_of(outage, [message.moment for message in messages], now)
            end = begin + timedelta(minutes=outage.minutes)
            steps += [(moment, partial(self._switch, outage, begins=moment == begin)) for moment in (begin, end)]
        return sorted(steps, key=lambda step: step[0])

    async def run(self, steps: Sequence[Step], say: Say) -> None:
        began, total, done = time.monotonic(), sum(isinstance(what, Planned) for _, what in steps), 0
        batch: list[Planned] = []
        shown: datetime | None = None
        for moment, what in steps:
            if shown is None or moment.date() != shown.date():
                await self._deliver_all(batch)
                batch, shown = [], moment
                await self._end_day(moment)
                say(f"{moment:%a %d %b}  {done:4} of {total} messages, {time.monotonic() - began:.0f} s")
            if isinstance(what, Planned):
                done += 1
                if batch and (len(batch) >= BATCH or moment - batch[0].moment > BATCH_HOURS):
                    await self._deliver_all(batch)
                    batch = []
                batch.append(what)
                continue
            await self._deliver_all(batch)
            batch = []
            await self._clock.move(moment)
            await what()
        await self._deliver_all(batch)
        await self._until_stored()

    async def _end_day(self, moment: datetime) -> None:
        """Count the day that has ended, as guard does all the time: figures of hours are not kept for two weeks."""
        await self._until_stored()
        await self._clock.move(moment.replace(hour=0, minute=1))
        await self._history.update_rollups(ALL)

    async def _deliver_all(self, batch: Sequence[Planned]) -> None:
        """Scan a few messages beside each other, with the lists as they are by then."""
        if not batch:
            return
        await self._until_lists()
        await self._clock.move(batch[-1].moment)
        slots = asyncio.Semaphore(PARALLEL)

        async def one(message: Planned) -> None:
            async with slots:
                await self._deliver(message)

        await asyncio.gather(*(one(message) for message in batch))

    async def _deliver(self, message: Planned) -> None:
        """Give a message to guard's scan source for SMTP, at its own time."""
        told.set((message.authentication, domain_of(address_in(message.sender))))
        with self._clock.at(message.moment):
            reply = await self._take(message.envelope, message.recipients, message.ip, message.helo, write(message))
        if match := _GGRID.search(reply):
            ggrid = UUID(match[0])
            self._ggrids[message.number] = ggrid
            self._unstored.append(ggrid)
        if reply.startswith("451"):  # undecided: the sending server keeps it
            self._retries.append(message)
        elif not reply.startswith("250"):
            self.skipped.append(f"{message.story}: {reply}")

    async def _take(self, sender: str, recipients: Sequence[str], ip: str, helo: str, raw: bytes) -> str:
        transaction = Transaction()
        transaction.sender = Sender(sender, eight_bit=not raw.isascii())
        transaction.forwarded = Forwarded(ip, helo)
        for address in recipients:
            assignment, recipient = self._smtp.assign(address), Recipient(address)
            transaction.recipients.append(recipient)
            transaction.assigned[address] = assignment
            transaction.tenants.setdefault(assignment.tenant, []).append(recipient)
        try:
            return await self._smtp.take(transaction, Spooled.of(raw))
        except MailwardenError as error:
            return str(error.message)

    # Lists, feeds and engines

    async def _change_list(self, change: ListChange) -> None:
        scope = ListScope(None if change.scope == "global" else self._places[change.scope])
        actor = Actor(f"user:{change.by}", "192.0.2.20")
        expires = self._clock.moment + timedelta(days=change.expires) if change.expires else None
        entries = [ListEntryInput(entry, change.comment, expires) for entry in change.add]
        await self._lists.add_entries(scope, change.list, entries, actor)
        if change.remove:
            await self._lists.delete_entries(scope, change.list, change.remove, actor)
        self._changed_at = time.time()

    async def _update_feed(self, story: FeedStory, update: FeedUpdate) -> None:
        """Write the file that the feed reads, and run it as the job of abby does."""
        await self._until_stored()
        database = Database(self._context.config.database.url, CONNECTIONS, COMMAND_SECONDS)
        path = self._context.folder / "feeds" / story.source.rpartition("/")[2]
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(update.values) + "\n", "utf-8")
        tenant = None if story.scope == "global" else self._places[story.scope]
        actor = Actor(f"user:{story.by}", "192.0.2.20")
        try:
            async with open_http(AddressRules.of((), ()), trust_of(self._context.folder, "")) as http:
                service: FeedService = open_feeds(database, http, self._mail.key, load_policy())
                feed = next((feed for feed in await service.store.list(ALL) if feed.name == story.name), None)
                if feed is None:
                    settings = FeedSettings(str(path), FeedFormat.TEXT, story.list)
                    feed = await service.add(tenant, story.name, settings, actor)
                else:
                    await service.update_soon(feed, actor)
                job = FeedJob(service, http, Metrics())
                await job.look()
                waiting = await service.store.open_update(feed, UpdateState.WAITING)
                if waiting is not None and update.state == "applied":
                    await service.approve(feed, waiting.uid, actor)
                    await job.look()
        finally:
            await database.close()
        self._changed_at = time.time()

    async def _switch(self, outage: Outage, *, begins: bool) -> None:
        """Stop or start an engine; at its start the messages that waited are sent again."""
        (away.add if begins else away.discard)(outage.engine)

        def is_seen() -> bool:
            return any(state.name == outage.engine and state.up is not begins for state in self._guard.status().engines)

        await _until(is_seen, f"guard did not notice that {outage.engine} is {'down' if begins else 'up'}")
        if not begins:
            waiting, self._retries = self._retries, []
            first = self._clock.moment + RETRY
            await self._deliver_all(
                [replace(message, moment=first + RETRY / 7 * place) for place, message in enumerate(waiting)]
            )

    # Actions of users

    async def _act(self, message: Planned, after: After) -> None:
        """Perform an action of a user; one that is not possible is left out, and listed at the end."""
        await self._until_stored()
        people = self._book.people
        person, user = people.person(after.who), people.user(after.who)
        places = {person[1].name: person[0].address} if person and user is None else {}
        for address in message.recipients:
            tenant = next(tenant.name for tenant in people.tenants if domain_of(address) in tenant.domains)
            if user is not None and (not user.tenants or tenant in user.tenants):
                places.setdefault(tenant, address)
        try:
            if after.is_report and person is not None and person[0].address in message.recipients:
                await self._report(message, after, person[0], person[1].domains[0])
            else:
                for tenant, address in places.items():
                    by_user = user is not None
                    actor = Actor(f"user:{after.who}", "192.0.2.20") if by_user else Actor(f"{BY_RECIPIENT}{address}")
                    await self._act_in(self._places[tenant], message, after, actor, None if by_user else address)
            self.actions += 1
        except MailwardenError as error:
            self.skipped.append(f"{message.story}: {after.action} by {after.who}: {error.message}")

    async def _report(self, message: Planned, after: After, person: Person, domain: str) -> None:
        told.set(("pass", domain_of(person.address)))
        to = report_address(domain, after.action.removeprefix("report-"))
        mail = report(person, to, message.subject, write(message), format_datetime(self._clock.moment))
        reply = await self._take(person.address, [to], "192.0.2.25", f"mail.{domain}", mail)
        if not reply.startswith("250"):
            raise CommandError(reply)

    async def _act_in(self, tenant: UUID, message: Planned, after: After, actor: Actor, recipient: str | None) -> None:
        ggrid, scope = self._ggrids[message.number], Scope.of(tenant)
        kind, _, what = after.action.partition("-")
        recipients = None if recipient is None else [recipient]
        if kind in ("release", "delete"):
            (held,) = (await self._quarantine.store.of_rows(scope, [(ggrid, tenant)])).values()
            if kind == "delete":
                await self._quarantine.delete(scope, held.uid, actor, recipients=recipients)
                return
            await self._quarantine.release(scope, held.uid, actor, recipients=recipients)
            await self._releases.look()
        elif kind == "report":
            await self._reports.report_message(scope, str(ggrid), Kind(what), actor, write(message))
        elif kind == "close":
            await self._close(scope, ggrid, CaseOutcome(what.removeprefix("case-")), actor)
        else:
            entry = ListEntryInput(address_in(message.sender), after.note)
            await self._lists.add_entries(ListScope(tenant), f"sender-{kind}", [entry], actor)
            self._changed_at = time.time()

    async def _close(self, scope: Scope, ggrid: UUID, outcome: CaseOutcome, actor: Actor) -> None:
        """Close the open case of the message, if a user has reported it."""
        for case in await self._cases.cases(scope):
            if case.is_open and any(one.ggrid == ggrid for one in await self._cases.reports(scope, case.uid)):
                await self._cases.close(scope, case.uid, outcome, actor)

    # Results of background jobs

    async def _until_stored(self) -> None:
        """Wait until history has every message that was scanned."""
        if not self._unstored:
            return
        ggrids = set(self._unstored)
        end = time.monotonic() + PATIENCE
        async with self._context.database.connection() as connection:
            while await connection.fetchval(_STORED, sorted(ggrids)) != len(ggrids):
                if time.monotonic() > end:
                    raise CommandError("History did not store the messages of the demo within a minute.")
                await asyncio.sleep(0.01)
        self._unstored = []

    async def _until_lists(self) -> None:
        """Wait until scans know the last change of a list."""
        changed, self._changed_at = self._changed_at, None
        if changed is not None:
            await _until(lambda: self._age_of_lists() < time.time() - changed, "guard did not read the lists")

    def _age_of_lists(self) -> float:
        lag = self._guard.status().lists_lag_seconds
        return PATIENCE if lag is None else lag


def _begin_of(outage: Outage, moments: Sequence[datetime], now: datetime) -> datetime:
    """Return the begin of an outage: on its day, just before most of its messages."""
    day, length = moment_of(outage.days, now).date(), timedelta(minutes=outage.minutes)
    begins = [moment - timedelta(seconds=30) for moment in moments if moment.date() == day]
    met = {begin: sum(begin < moment < begin + length for moment in moments) for begin in begins}
    return max(begins, key=lambda begin: met[begin], default=moment_of(outage.days, now))


async def _until(condition: Callable[[], bool], failure: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise CommandError(f"{failure} within {PATIENCE:.0f} seconds.")
        await asyncio.sleep(0.01)
