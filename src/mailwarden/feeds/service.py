"""Updates feeds: fetches, rehearses, and applies or waits; approval, expiry and removal of a feed's entries.

Nothing reaches a list before its update was read to the end, compared with what the feed had, held against the warning
lists and rehearsed against the last 30 days. Every doubt makes the update wait: nothing is applied unrehearsed.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from mailwarden.crypto.keyring import BrokenSeal
from mailwarden.crypto.seal import Seal
from mailwarden.errors import (
    EntryTooBroad,
    FeedRejected,
    FeedUnreachable,
    InvalidEntry,
    ListFull,
    MailwardenError,
    SchemaViolation,
)
from mailwarden.feeds.fetching import Fetched, HttpClient, fetch
from mailwarden.feeds.indicators import Indicator, Skipped, cut
from mailwarden.feeds.model import (
    AUTHOR,
    MAX_NAME,
    TARGETS,
    Difference,
    Feed,
    FeedSettings,
    HitMessage,
    LeftOut,
    Preview,
    Update,
    UpdateState,
    Wait,
    WaitReason,
    WarningList,
    waits_of,
)
from mailwarden.feeds.parsing import parse
from mailwarden.feeds.store import Candidate, FeedStore
from mailwarden.feeds.warning_lists import ScopedWarningLists, WarningLists
from mailwarden.lists.catalogue import ListDefinition, MatchOn, find_list
from mailwarden.lists.files import Row
from mailwarden.lists.kinds import Entry
from mailwarden.lists.requests import PublicListsEntry
from mailwarden.lists.service import MAX_IMPORT, ListService, stamp_of, time_text
from mailwarden.lists.store import ListScope, ListStore
from mailwarden.model.scope import Actor
from mailwarden.policy.candidate_terms import candidate_terms
from mailwarden.policy.rehearsal import Rehearsal, Rehearsed
from mailwarden.telemetry.logs import get_logger

MAX_CREDENTIAL = 4_096
BATCH = 2_000  # indicators that are read and staged at once
CHUNK = 5_000  # entries of one lookup in a list
MAX_SHOWN = 100  # entries that were left out
MAX_AGE = timedelta(days=1)  # of a rehearsal; an update that is applied later is rehearsed again
_TEXT = 200

_log = get_logger("feeds")


class Outcome(StrEnum):
    """The result of a run."""

    UNCHANGED = "unchanged"
    APPLIED = "applied"
    WAITING = "waiting"


class _Reading(Struct):
    """The state of reading an update."""

    skipped: Skipped = field(default_factory=Skipped)
    read: int = 0
    invalid: int = 0
    left_out: dict[WarningList, int] = field(default_factory=dict)
    shown: list[LeftOut] = field(default_factory=list)


class FeedService:
    """All that users and the job do with feeds."""

    def __init__(
        self,
        store: FeedStore,
        *,
        lists: ListStore,
        list_service: ListService,
        warnings: WarningLists,
        rehearsal: Rehearsal,
        http: HttpClient,
        seal: Seal,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.store = store
        self._lists = lists
        self._list_service = list_service
        self._warnings = warnings
        self._rehearsal = rehearsal
        self._http = http
        self._seal = seal
        self._clock = clock

    def now(self) -> datetime:
        return self._clock()

    async def add(
        self, tenant: UUID | None, name: str, settings: FeedSettings, actor: Actor, credential: str = ""
    ) -> Feed:
        """Subscribe to a feed; `credential` is a request header such as `Authorization: Bearer …`."""
        name = name.strip()
        if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
            raise SchemaViolation(f"The name of a feed has 1 to {MAX_NAME} printable characters.")
        _check_credential(credential)
        feed = await self.store.add(ListScope(tenant), name, settings.checked(), actor)
        if credential:
            await self.store.seal(feed, self._seal.close(credential.encode(), feed.uid.bytes))
        return feed

    async def run(self, feed: Feed) -> Outcome:
        """Update a feed that was claimed: an approved update first, then what the source has now."""
        open_update = await self.store.open_update(feed, UpdateState.APPLYING)
        if open_update is not None and self._clock() - _rehearsed_at(open_update) > MAX_AGE:
            return await self._renew(feed, open_update)  # the next run fetches: one rehearsal a run
        outcome = Outcome.UNCHANGED
        if open_update is not None:  # approved, or broken off while it was applied
            outcome = await self._apply(feed, open_update.uid, open_update.preview)
        await self.expire(feed)
        fetched = await fetch(feed, self._http, self.credential(feed))
        now = self._clock()
        if fetched is None:
            await self.store.set_fetched(feed, now, feed.etag, feed.modified)
            return outcome
        latest = await self.store.latest(feed)
        if latest is None or latest[0] != fetched.digest:
            updated = await self._update(feed, fetched, now)
            if updated is None:
                return outcome
            outcome = updated
        await self.store.set_fetched(feed, now, fetched.etag, fetched.modified)
        return outcome

    async def approve(self, feed: Feed, update: UUID, actor: Actor) -> Update:
        """Approve an update that waits; the next run applies it, at once."""
        approved = await self.store.decide(feed, update, UpdateState.APPLYING, self._clock(), actor)
        await self.store.set_due(feed, self._clock())
        return approved

    async def reject(self, feed: Feed, update: UUID, actor: Actor) -> Update:
        """Reject an update: nothing changes, until the feed has other content."""
        return await self.store.decide(feed, update, UpdateState.REJECTED, self._clock(), actor)

    async def update_soon(self, feed: Feed, actor: Actor) -> None:
        """Let the job run the feed next."""
        await self.store.set_due(feed, self._clock(), actor)

    async def remove(self, feed: Feed, actor: Actor) -> int:
        """Remove a feed that was claimed, and the list entries that it alone gave; return how many entries."""
        await self.store.drop_all(feed, datetime.fromtimestamp(0, UTC))
        removed = await self.expire(feed)
        await self.store.remove(feed, actor)
        return removed

    def credential(self, feed: Feed) -> Mapping[str, str]:
        """Return the request header of the feed."""
        if feed.sealed is None:
            return {}
        try:
            header = self._seal.open(feed.sealed, feed.uid.bytes).decode()
        except BrokenSeal as error:
            raise FeedUnreachable(f"The credential of the feed cannot be decrypted: {error}") from None
        name, _, value = header.partition(":")
        return {name.strip(): value.strip()}

    # The rehearsal

    async def _update(self, feed: Feed, fetched: Fetched, now: datetime) -> Outcome | None:
        """Rehearse new content, and apply it or let it wait; None if another update was approved meanwhile.

        That update is applied next, and then the source is fetched again.
        """
        update = await self.store.begin(feed, now, fetched.digest)
        try:
            preview = await self._rehearse(feed, update, fetched, now)
            state = UpdateState.WAITING if preview.waits else UpdateState.APPLYING
            placed = await self.store.place(feed, update, state, preview, now)
        except BaseException:
            await asyncio.shield(self.store.discard(feed))
            raise
        if not placed:
            await self.store.discard(feed)
            return None
        if preview.waits:
            return _waiting(feed, preview)
        return await self._apply(feed, update, preview)

    async def _renew(self, feed: Feed, update: Update) -> Outcome:
        """Rehearse an old update again; apply it unless it hits good mail that was not in view."""
        now, reading, warnings = self._clock(), _Reading(), await self._warnings.open(feed.scope)
        async for page in self.store.new_entries(feed, update.uid, CHUNK):
            await self._keep(feed, update.uid, page, warnings, reading)
        difference = await self.store.compare(feed, update.uid)
        again = await self._preview(feed, update.uid, difference, _joined(update.preview, reading), now)
        if waits := tuple(_unapproved(feed.settings, update.preview, again)):
            return await self._wait_again(feed, update.uid, replace(again, waits=waits))
        await self.store.set_preview(feed, update.uid, again)
        return await self._apply(feed, update.uid, again)

    async def _wait_again(self, feed: Feed, update: UUID, preview: Preview) -> Outcome:
        await self.store.place(feed, update, UpdateState.WAITING, preview, self._clock())
        return _waiting(feed, preview)

    async def _rehearse(self, feed: Feed, update: UUID, fetched: Fetched, now: datetime) -> Preview:
        reading = _Reading()
        await self._stage(feed, update, fetched, now, reading)
        difference = await self.store.compare(feed, update)
        await self._check_room(feed, difference)
        read = _joined(Preview(skipped=reading.skipped.counts), reading)
        preview = await self._preview(feed, update, difference, read, now)
        return replace(preview, waits=tuple(waits_of(feed.settings, difference, preview)))

    async def _preview(self, feed: Feed, update: UUID, difference: Difference, read: Preview, now: datetime) -> Preview:
        """Rehearse the new entries; return the preview with the difference and the good mail that they hit."""
        try:
            rehearsed = await self._rehearsal.run(
                feed.scope,
                feed.settings.list_name,
                self._new(feed, update),
                feed.settings.good_mail_budget,
                accept_unseen=feed.settings.accept_unseen,
            )
        except MailwardenError as error:  # history is down: the update waits
            rehearsed = Rehearsed(0, 0, (), (error.message,))
        return replace(
            read,
            entries=difference.entries,
            known=difference.known,
            added=difference.added,
            dropped=difference.dropped,
            changed=difference.changed,
            good_mail=rehearsed.good_mail,
            rehearsed=rehearsed.entries,
            rehearsed_at=now,
            messages=tuple(_messages(rehearsed)),
            notes=rehearsed.notes,
        )

    async def _stage(self, feed: Feed, update: UUID, fetched: Fetched, now: datetime, reading: _Reading) -> None:
        """Read all indicators into the table of candidates, without those on a warning list."""
        warnings = await self._warnings.open(feed.scope)
        indicators = parse(feed.settings, fetched.documents, now, reading.skipped)
        reader = _EntryReader(feed, now, reading)
        # In a thread: a large feed takes seconds to read, and abby scans meanwhile.
        while (batch := await asyncio.to_thread(reader.next, indicators)) is not None:
            kept = await _without_warned(warnings, feed.settings.list_name, batch, reading)
            if kept:
                await self.store.stage(feed, update, kept)
        if reading.invalid * 2 > reading.read:
            raise FeedRejected(
                f"{reading.invalid:,} of {reading.read:,} values are no entries of {feed.settings.list_name}: "
                "check the format and the mapping of the feed."
            )

    async def _check_room(self, feed: Feed, difference: Difference) -> None:
        definition = find_list(feed.settings.list_name)
        used = (await self._list_service.counts(feed.scope)).get(definition.name, 0)
        room = definition.max_size(in_tenant=feed.tenant is not None) - used
        if difference.added > room:
            raise FeedRejected(
                f"{difference.added:,} entries are new, and {definition.name} has room for {max(room, 0):,}. "
                "Subscribe to a smaller feed, or raise its minimum confidence."
            )

    async def _new(self, feed: Feed, update: UUID) -> AsyncIterator[Sequence[str]]:
        async for page in self.store.new_entries(feed, update, CHUNK):
            yield [each.entry for each in page]

    # The lists

    async def _apply(self, feed: Feed, update: UUID, preview: Preview) -> Outcome:
        """Write an update into the list: one change for each 50,000 entries, which list history can undo.

        Entries that are on a warning list by now are left out. If the list is full, the update waits.
        """
        now, reading, warnings = self._clock(), _Reading(), await self._warnings.open(feed.scope)
        try:
            for pages, is_new in ((self.store.new_entries, True), (self.store.changed_entries, False)):
                async for page in pages(feed, update, MAX_IMPORT):
                    kept = await self._keep(feed, update, page, warnings, reading)
                    await self._write_page(feed, kept, now, is_new=is_new)
                    await self.store.take(feed, update, [each.entry for each in kept], now)
        except ListFull:
            left = await self.store.compare(feed, update)
            most = find_list(feed.settings.list_name).max_size(in_tenant=feed.tenant is not None)
            full = Wait(WaitReason.LIST_FULL, left.added, most)
            return await self._wait_again(feed, update, replace(_joined(preview, reading), waits=(full,)))
        if reading.left_out:
            await self.store.set_preview(feed, update, _joined(preview, reading))
        await self.store.complete(feed, update, now)
        await self.expire(feed)
        return Outcome.APPLIED

    async def _keep(
        self,
        feed: Feed,
        update: UUID,
        page: Sequence[Candidate],
        warnings: ScopedWarningLists,
        reading: _Reading,
    ) -> list[Candidate]:
        """Take entries that are on a warning list out of the update; return the others."""
        kept = await _without_warned(warnings, feed.settings.list_name, page, reading)
        if len(kept) < len(page):
            names = {each.entry for each in kept}
            await self.store.unstage(feed, update, [each.entry for each in page if each.entry not in names])
        return kept

    async def _write_page(self, feed: Feed, page: Sequence[Candidate], now: datetime, *, is_new: bool) -> None:
        """Write candidates with the latest expiry that a feed has for them; entries of users stay as they are."""
        names = [each.entry for each in page]
        there = {each.entry: each for each in await self._present(feed, names)}
        held = await self.store.held_by_others(feed, names, now, time_text(now))
        rows = []
        for each in page:
            entry = there.get(each.entry)
            expires = _later(each.expires, held[each.entry]) if each.entry in held else each.expires
            if entry is not None and is_new:
                expires = _later(expires, entry.expires)
            if is_new if entry is None else _is_of_feed(entry) and expires != entry.expires:
                rows.append(_row(each.entry, expires, _comment(each)))
        await self._write(feed, rows)

    async def expire(self, feed: Feed) -> int:
        """Delete entries that the feed dropped longer ago than its TTL; return how many the list lost.

        An entry that another feed has stays, with the expiry of that feed.
        """
        now, definition, lost = self._clock(), find_list(feed.settings.list_name), 0
        while over := await self.store.over(feed, now - feed.settings.ttl, time_text(now), CHUNK):
            names = [entry for entry, _ in over]
            held = await self.store.held_by_others(feed, names, now, time_text(now))
            own = {each.entry: each for each in await self._present(feed, names) if _is_of_feed(each)}
            gone = sorted(Entry(name) for name, dropped in over if dropped and name in own and name not in held)
            if gone:
                lost += await self._lists.delete(feed.scope, definition, gone, stamp_of(Actor(feed.author)))
            others = [name for name in names if name in held and name in own and held[name] != own[name].expires]
            await self._write(feed, [_row(name, held[name]) for name in others])
            await self.store.forget(feed, names)
        return lost

    async def _write(self, feed: Feed, rows: Sequence[Row]) -> None:
        if rows:
            name = feed.settings.list_name
            await self._list_service.import_rows(feed.scope, name, rows, Actor(feed.author), action="feed")

    async def _present(self, feed: Feed, entries: Sequence[str]) -> Sequence[PublicListsEntry]:
        found: list[PublicListsEntry] = []
        for start in range(0, len(entries), CHUNK):
            some = entries[start : start + CHUNK]
            found += await self._list_service.present(feed.scope, feed.settings.list_name, some)
        return found


class _EntryReader:
    """Turns indicators into entries as the List API does: normalised, and not too broad."""

    def __init__(self, feed: Feed, now: datetime, reading: _Reading) -> None:
        self._settings = feed.settings
        self._definition: ListDefinition = find_list(feed.settings.list_name)
        self._now = now
        self._reading = reading

    def next(self, indicators: Iterator[Indicator]) -> list[Candidate] | None:
        """Return the entries of the next batch, or None at the end of the feed."""
        batch = list(islice(indicators, BATCH))
        found = [self._candidate(each) for each in batch]
        return [each for each in found if each is not None] if batch else None

    def _candidate(self, indicator: Indicator) -> Candidate | None:
        settings, reading = self._settings, self._reading
        if indicator.kind not in TARGETS[settings.list_name]:
            return self._skip(f"{indicator.kind} is not for {settings.list_name}")
        if indicator.confidence < settings.min_confidence:
            return self._skip(f"confidence below {settings.min_confidence}")
        if indicator.valid_until is not None and indicator.valid_until <= self._now:
            return self._skip("expired indicator")
        reading.read += 1
        try:
            entry = self._definition.normalise(indicator.value)
        except InvalidEntry:
            reading.invalid += 1
            return self._skip("not a valid entry")
        except EntryTooBroad:
            return self._skip("too broad")
        if MatchOn.FILE in self._definition.match_on and len(entry) != 64:
            return self._skip("SHA-1 or MD5: history has SHA-256 alone, so it cannot be rehearsed")
        by_network = MatchOn.CLIENT_IP in self._definition.match_on
        if by_network and not candidate_terms(settings.list_name, [entry], adds=True).terms:
            return self._skip("network too large to be rehearsed")
        until = None if indicator.valid_until is None else time_text(indicator.valid_until)
        return Candidate(entry, indicator.confidence, cut(indicator.reference), until)

    def _skip(self, reason: str) -> Candidate | None:
        self._reading.skipped.add(reason)
        return None


async def _without_warned(
    warnings: ScopedWarningLists, list_name: str, batch: Sequence[Candidate], reading: _Reading
) -> list[Candidate]:
    hits = await warnings.check(list_name, list(dict.fromkeys(each.entry for each in batch)))
    for entry, warning in hits.items():
        reading.left_out[warning] = reading.left_out.get(warning, 0) + 1
        if len(reading.shown) < MAX_SHOWN:
            reading.shown.append(LeftOut(entry, warning))
    return [each for each in batch if each.entry not in hits]


def _waiting(feed: Feed, preview: Preview) -> Outcome:
    _log.warning(
        "feed_update_waits", feed=feed.name, tenant=str(feed.tenant or ""), added=preview.added,
        dropped=preview.dropped, reasons=[wait.reason.value for wait in preview.waits],
    )  # fmt: skip
    return Outcome.WAITING


def _rehearsed_at(update: Update) -> datetime:
    return update.preview.rehearsed_at or update.fetched


def _joined(preview: Preview, reading: _Reading) -> Preview:
    """Return the preview with the entries that were left out."""
    counts = {**preview.left_out}
    for warning, number in reading.left_out.items():
        counts[warning] = counts.get(warning, 0) + number
    shown = (*preview.left_out_entries, *reading.shown)[:MAX_SHOWN]
    return replace(preview, left_out=counts, left_out_entries=shown)


def _unapproved(settings: FeedSettings, approved: Preview, again: Preview) -> Iterator[Wait]:
    """Yield the reasons to ask again: good mail over the budget that was not in view, or fewer entries rehearsed."""
    seen = {message.ggrid for message in approved.messages}
    is_more = again.good_mail > approved.good_mail or any(message.ggrid not in seen for message in again.messages)
    if is_more and again.good_mail > settings.good_mail_budget:
        yield Wait(WaitReason.GOOD_MAIL, again.good_mail, settings.good_mail_budget)
    if again.rehearsed < min(again.added, approved.rehearsed):
        yield Wait(WaitReason.INCOMPLETE, again.rehearsed, again.added)


def _messages(rehearsed: Rehearsed) -> Iterator[HitMessage]:
    for hit in rehearsed.hits:
        request = hit.request
        sender = request.summary.from_address or request.envelope.sender
        yield HitMessage(
            request.ggrid,
            request.tenant,
            request.created,
            cut(sender, _TEXT),
            cut(request.summary.subject, _TEXT),
            hit.entry,
        )


def _is_of_feed(entry: PublicListsEntry) -> bool:
    """Return whether a feed added the entry and no user changed it: entries of users stay."""
    return entry.created_by.startswith(AUTHOR) and entry.updated_by.startswith(AUTHOR)


def _later(left: str | None, right: str | None) -> str | None:
    """Return the later expiry; None is never."""
    return None if left is None or right is None else max(left, right)


def _row(entry: str, expires: str | None, comment: str | UnsetType = UNSET) -> Row:
    return Row(0, entry, comment, datetime.fromisoformat(expires) if expires else None)


def _comment(candidate: Candidate) -> str:
    return f"confidence {candidate.confidence}, {candidate.reference}"


def _check_credential(credential: str) -> None:
    """Raise SchemaViolation unless the credential is a request header, or empty."""
    name, colon, value = credential.partition(":")
    usable = name.strip().replace("-", "").isalnum() and colon and value.strip() and credential.isprintable()
    if credential and (not usable or not credential.isascii() or len(credential) > MAX_CREDENTIAL):
        raise SchemaViolation("The credential must be one request header: `Authorization: Bearer …`.")
