"""What the console needs of the quarantine; abby lends it the desk that its API uses."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

from mailwarden.errors import MessageNotFound
from mailwarden.history.store import HistoryStore
from mailwarden.model.actor import Actor
from mailwarden.model.outcome import Verdict
from mailwarden.model.scope import Scope
from mailwarden.quarantine.held import HeldMessage, Question
from mailwarden.serving.spool import Spooled
from mailwarden.wire.quarantine import Listed

QUARANTINE = "/console/quarantine"


class Quarantine(Protocol):
    """Held messages of a scope; what is foreign is answered like what does not exist. The audit is told by it."""

    async def page(self, scope: Scope, question: Question, limit: int) -> Sequence[HeldMessage]: ...

    async def counts(self, scope: Scope, tenant: UUID | None = None) -> Mapping[Verdict, int]:
        """Return how many messages wait for somebody, by verdict."""

    async def find(self, scope: Scope, uid: UUID) -> HeldMessage: ...

    async def of_ggrid(self, scope: Scope, tenant: UUID, ggrid: UUID) -> HeldMessage: ...

    async def release(
        self,
        scope: Scope,
        uid: UUID,
        actor: Actor,
        *,
        recipients: Sequence[str] | None = None,
        allow: Listed | None = None,
    ) -> HeldMessage: ...

    async def delete(
        self,
        scope: Scope,
        uid: UUID,
        actor: Actor,
        *,
        recipients: Sequence[str] | None = None,
        block: Listed | None = None,
    ) -> HeldMessage: ...

    async def look_into(self, scope: Scope, uid: UUID, actor: Actor) -> Spooled:
        """Return the message itself, to be shown safely."""

    async def export(self, scope: Scope, uid: UUID, actor: Actor) -> Spooled:
        """Return the message itself, to be given out."""


def uid_in(text: str) -> UUID:
    """Return the uid that a path or a form names; what is none names no message."""
    try:
        return UUID(text)
    except ValueError:
        raise MessageNotFound("There is no such message in quarantine.") from None


async def reasons_for(history: HistoryStore, scope: Scope, messages: Sequence[HeldMessage]) -> Mapping[UUID, str]:
    """Return why each message was held, in one sentence; what history has forgotten already is left out."""
    found = await asyncio.gather(*(history.find(scope.narrowed(message.tenant), message.ggrid) for message in messages))
    return {
        message.uid: finished.judgement.summary
        for message, finished in zip(messages, found, strict=True)
        if finished is not None
    }
