"""What the people of a tenant do with messages: report them, take a report back, start anew.

The API, the console and the commands all come here. What is said is kept as a lesson; a guard has it learned.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from uuid import UUID, uuid4

from mailwarden.errors import EmptyEmail, OtherMessage
from mailwarden.history.lookup import find_message
from mailwarden.history.store import HistoryStore
from mailwarden.learning.contents import ContentsSeal, GivenMessage
from mailwarden.learning.lesson import Kind, Lesson, NewLesson, Standing
from mailwarden.learning.senders import Senders
from mailwarden.learning.store import LessonStore
from mailwarden.model.actor import Actor
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.wire.strict_json import violation_at

MAX_SUBJECT = 200


class Teaching:
    def __init__(self, store: LessonStore, history: HistoryStore, senders: Senders, seal: ContentsSeal) -> None:
        self._store = store
        self._history = history
        self._senders = senders
        self._seal = seal

    async def report_message(
        self, scope: Scope, ggrid: str, kind: Kind, actor: Actor, contents: bytes | GivenMessage | None = None
    ) -> Lesson:
        """Take somebody's word on a message in history; its bytes, where they are given, must be that message's.

        Only one tenant learns from a report, so the scope must have one row of that ggrid.
        """
        request = await find_message(self._history, scope, ggrid)
        if len(await self._history.tenants_of(scope, request.ggrid)) > 1:
            raise violation_at("/tenantUid", "Missing: the message has recipients of several tenants, name one")
        given = _given(contents)
        if given is not None and given.digest.hex() != request.summary.sha256:
            raise OtherMessage(
                "These are not the bytes of that message: send it exactly as it was scanned, or report it by itself."
            )
        summary = request.summary
        digest = bytes.fromhex(summary.sha256) if summary.sha256 else sha256(ggrid.encode()).digest()
        uid = uuid4()
        lesson = NewLesson(
            uid=uid,
            tenant=request.tenant,
            kind=kind,
            digest=digest,
            size=summary.size,
            contents=await self._sealed(uid, given),
            ggrid=request.ggrid,
            subject=summary.subject[:MAX_SUBJECT],
        )
        return await self._keep(scope, lesson, actor, request)

    async def report_contents(
        self, scope: Scope, tenant: UUID, kind: Kind, actor: Actor, *, contents: bytes | GivenMessage
    ) -> Lesson:
        """Take somebody's word on a message that history need not know."""
        given = _given(contents)
        if given is None or not given.size:
            raise EmptyEmail("The message is empty: send its raw bytes.")
        uid = uuid4()
        lesson = NewLesson(uid, tenant, kind, given.digest, given.size, await self._sealed(uid, given))
        return await self._keep(scope, lesson, actor)

    async def take_back(self, scope: Scope, uid: UUID, actor: Actor) -> None:
        """Undo a report: what was learned is learned anew without it."""
        tenant, remembered = await self._store.take_back(scope, uid, actor)
        if remembered is not None:
            await self._senders.undo(tenant, remembered)

    async def reset(self, scope: Scope, tenant: UUID, actor: Actor) -> int:
        """Forget every report of a tenant and all that was learned from them; return how many there were."""
        return await self._store.reset(scope, tenant, actor)

    async def rebuild(self, scope: Scope, tenant: UUID, actor: Actor) -> None:
        """Have everything learned anew, as when statistics were lost; what there is serves until then."""
        await self._store.rebuild(scope, tenant, actor)

    async def standing(self, scope: Scope, tenant: UUID) -> Standing:
        return await self._store.standing(scope, tenant)

    async def reports(
        self, scope: Scope, tenant: UUID, before: datetime | None = None, limit: int = 100
    ) -> Sequence[Lesson]:
        return await self._store.page(scope, tenant, before, limit)

    async def reports_of(self, scope: Scope, ggrid: UUID) -> Sequence[Lesson]:
        return await self._store.of_message(scope, ggrid)

    async def _keep(
        self, scope: Scope, lesson: NewLesson, actor: Actor, request: FinishedRequest | None = None
    ) -> Lesson:
        """Keep the lesson, then change what is known of the sender; what was changed before for the same stays."""
        kept, replaced = await self._store.add(scope, lesson, actor)
        changed = replaced.remembered if replaced is not None else None
        if replaced is not None and changed is not None and replaced.kind.is_threat != lesson.kind.is_threat:
            await self._senders.undo(lesson.tenant, changed)
            changed = None
        if changed is None and request is not None:
            changed = await (self._senders.distrust if lesson.kind.is_threat else self._senders.trust)(request)
        if changed is not None:
            await self._store.remember(scope, kept.uid, changed)
        return kept

    async def _sealed(self, uid: UUID, given: GivenMessage | None) -> bytes | None:
        """Return the message as it is kept; one that is not given or too large is not."""
        if given is None or given.data is None:
            return None
        return await asyncio.to_thread(self._seal.close, given.data, uid)


def _given(contents: bytes | GivenMessage | None) -> GivenMessage | None:
    return GivenMessage.of(contents) if isinstance(contents, bytes) else contents
