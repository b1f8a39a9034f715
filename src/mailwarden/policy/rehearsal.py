"""Rehearses many new block entries against the good mail of the last 30 days, to the end or with a note how far.

The impact preview of one change is an estimate within two seconds, for a user who waits. An update of a feed has
minutes and up to a million entries, and must not be applied on an estimate: here every entry is either rehearsed
against all messages that it may match, or counted as not rehearsed. History does not keep all that some lists match:
their entries count as not rehearsed, unless the caller accepts it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

from msgspec import Struct, field

from mailwarden.errors import SearchTooBroad
from mailwarden.lists.catalogue import MatchOn, find_list, names_on
from mailwarden.lists.store import ListScope
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import host_of, normalize_host
from mailwarden.model.outcome import Decision
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.policy.candidate_terms import candidate_terms
from mailwarden.policy.impact import DAYS, History
from mailwarden.policy.rejudge import Edit, RejudgedMessage
from mailwarden.policy.rules import Policy
from mailwarden.search.terms import terms_of
from mailwarden.senders.relations import GOOD

BATCH = 500  # entries of one search, see candidate_terms
MAX_MESSAGES = 1_500  # that one search may find; more are searched with fewer entries
COUNT_SECONDS = 5.0
MAX_SECONDS = 900.0
MAX_SHOWN = 100  # good messages; more of them add nothing to the decision
_TURN = 20  # messages to judge before other tasks of the event loop run
RELAYS = names_on(MatchOn.RELAY)
UNSEEN = "No entry counts as rehearsed, because history does not keep all that it may match."
PAGES = "A message counts as hit if history does not keep all of its links to the host of an entry."


class ListUse(Protocol):
    """The query of the entry store that the rehearsal needs."""

    async def in_use(self, scope: ListScope, list_name: str) -> bool: ...


class GoodHit(Struct, frozen=True):
    """A good message on which one of the entries would have acted."""

    request: FinishedRequest
    entry: str


class Rehearsed(Struct, frozen=True):
    """The result: entries rehearsed to the end, good messages hit, the first of them, and limits of history."""

    entries: int
    good_mail: int
    hits: tuple[GoodHit, ...]
    notes: tuple[str, ...] = ()


class _Run(Struct):
    edit: Edit
    seen_by: Scope
    since: datetime
    until: float
    most: int
    relayed: bool = False  # trusted relays are in use
    unseen: bool = False  # history does not keep all that the entries may match
    entries: int = 0
    good_hits: dict[tuple[object, object], GoodHit] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)


class Rehearsal:
    """Judges past messages again with entries of a block list."""

    def __init__(self, history: History, policy: Policy, lists: ListUse, *, seconds: float = MAX_SECONDS) -> None:
        self._history = history
        self._policy = policy
        self._lists = lists
        self._seconds = seconds

    async def run(
        self,
        scope: ListScope,
        list_name: str,
        batches: AsyncIterator[Sequence[str]],
        budget: int,
        *,
        accept_unseen: bool = False,
    ) -> Rehearsed:
        """Rehearse all entries, in stored form; end early if far more good mail is hit than the budget allows.

        With `accept_unseen`, entries count as rehearsed although history does not keep all that they may match.
        """
        # History has the peer's address and the hashes of parts, not the client IP behind a relay and no inner files.
        matched_on = find_list(list_name).match_on
        relayed = MatchOn.CLIENT_IP in matched_on and any([await self._lists.in_use(scope, relay) for relay in RELAYS])
        run = _Run(
            Edit(list_name, frozenset(), scope.tenant),
            Scope.deployment() if scope.tenant is None else Scope.of(scope.tenant),
            datetime.now(UTC) - timedelta(days=DAYS),
            time.monotonic() + self._seconds,
            most=budget + MAX_SHOWN,
            relayed=relayed,
            unseen=not accept_unseen and (relayed or MatchOn.FILE in matched_on),
        )
        async for batch in batches:
            for start in range(0, len(batch), BATCH):
                if time.monotonic() > run.until or len(run.good_hits) > run.most:
                    break
                await self._rehearse(run, batch[start : start + BATCH])
        if run.unseen:
            run.notes[UNSEEN] = None
        hits = tuple(run.good_hits.values())
        return Rehearsed(run.entries, len(hits), hits[:MAX_SHOWN], tuple(run.notes))

    async def _rehearse(self, run: _Run, entries: Sequence[str]) -> None:
        """Rehearse the entries; with more messages than one search reads, in halves."""
        search = candidate_terms(run.edit.list_name, entries, adds=True)
        run.notes.update(dict.fromkeys((PAGES,) if _is_on(run.edit, MatchOn.URL) else search.notes))
        if len(search.entries) < len(entries) or not search.terms:
            return  # history cannot find the messages of some: those count as not rehearsed
        try:
            count = await self._history.count(run.seen_by, search.terms, run.since, COUNT_SECONDS)
            requests: Sequence[FinishedRequest] = ()
            if count.counted or not count.exact:
                requests = await self._history.candidates(run.seen_by, search.terms, run.since, MAX_MESSAGES)
        except SearchTooBroad:
            count, requests = None, ()
        if count is not None and count.exact and len(requests) >= count.counted:
            await self._judge(run, entries, requests)
            run.entries += 0 if run.unseen else len(entries)
        elif len(entries) > 1 and time.monotonic() < run.until:
            half = len(entries) // 2
            await self._rehearse(run, entries[:half])
            await self._rehearse(run, entries[half:])
        else:  # one entry with more messages than are read: judge those, so that the preview shows some
            await self._judge(run, entries, requests)

    async def _judge(self, run: _Run, entries: Sequence[str], requests: Iterable[FinishedRequest]) -> None:
        by_term = _by_term(run.edit.list_name, entries)
        for number, request in enumerate(requests, 1):
            if number % _TURN == 0:
                await asyncio.sleep(0)
            if request.judgement.verdict not in GOOD or request.ruling.decision is not Decision.DELIVER:
                continue
            # Only the entries that may match: a list of all would take longer than the judgement.
            chosen = {entry for term in terms_of(request) for entry in by_term.get(term, ())}
            if not chosen:
                continue
            edit = Edit(run.edit.list_name, frozenset(chosen), run.edit.tenant)
            outcome = RejudgedMessage(request, edit).judge(self._policy, ())
            # If history lacks an input, the message counts as hit: a person looks at it.
            if (outcome.touched and outcome.differs) or outcome.undetermined:
                run.good_hits[request.ggrid, request.tenant] = GoodHit(request, min(chosen))
            elif unknown := _unknown(run, request, chosen):
                run.good_hits[request.ggrid, request.tenant] = GoodHit(request, min(unknown))


def _by_term(list_name: str, entries: Sequence[str]) -> Mapping[str, Sequence[str]]:
    entries_by_term: dict[str, list[str]] = {}
    for entry in entries:
        for term in candidate_terms(list_name, [entry], adds=True).terms:
            entries_by_term.setdefault(term, []).append(entry)
    return entries_by_term


def _unknown(run: _Run, request: FinishedRequest, entries: Iterable[str]) -> list[str]:
    """Return the entries of which history does not know whether they match the message."""
    if _is_on(run.edit, MatchOn.CLIENT_IP) and not run.relayed and request.listing.of(*RELAYS):
        return list(entries)  # the relay is not trusted any more: its own address is the client IP now
    return [entry for entry in entries if _hides_page(request, entry)] if _is_on(run.edit, MatchOn.URL) else []


def _is_on(edit: Edit, value: MatchOn) -> bool:
    return edit.list_name in names_on(value)


def _hides_page(request: FinishedRequest, entry: str) -> bool:
    """Return whether the message may have a link to this page or port that history does not keep."""
    host = normalize_host(host_of(f"http://{entry}"))
    summary = request.summary
    if entry.startswith("*.") or entry == host or host not in map(normalize_host, summary.url_hosts):
        return False
    links = [link for link in summary.links if normalize_host(link.host or host_of(link.target)) == host]
    is_cut = len(summary.links) >= SHOWN.links or any(len(link.target) >= SHOWN.link for link in links)
    return is_cut or not links
