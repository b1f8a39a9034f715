"""What an administrator does with the people of a scope: see, invite, move, shut out, and let in again."""

from collections.abc import Sequence
from uuid import UUID

from mailwarden.access.people import Position, User, checked_email
from mailwarden.access.registry import Registry
from mailwarden.access.setup_links import SetupLink
from mailwarden.errors import PersonNotFound
from mailwarden.model.actor import Actor
from mailwarden.model.scope import Scope


class Administration:
    """Every method keeps to the scope of whoever calls; whom they may not see does not exist for them."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def list(self, scope: Scope) -> Sequence[User]:
        return await self._registry.users.list(scope)

    async def links(self, scope: Scope) -> Sequence[SetupLink]:
        """Return the links that nobody has used yet."""
        return await self._registry.links.list(scope)

    async def find(self, scope: Scope, uid: UUID) -> User:
        user = await self._registry.users.find(scope, uid)
        if user is None:
            raise PersonNotFound("There is no such person.")
        return user

    async def invite(self, scope: Scope, position: Position, email: str, actor: Actor) -> str:
        """Return the token of a link for somebody new, shown once."""
        return await self._registry.links.invite(scope, position, checked_email(email), actor)

    async def withdraw(self, scope: Scope, link_id: UUID, actor: Actor) -> bool:
        return await self._registry.links.withdraw(scope, link_id, actor)

    async def renew(self, scope: Scope, uid: UUID, actor: Actor) -> str:
        """Return the token of a link by which a person chooses everything anew, shown once."""
        return await self._registry.links.renew(scope, await self.find(scope, uid), actor)

    async def move(self, scope: Scope, uid: UUID, position: Position, actor: Actor) -> User:
        return await self._registry.users.move(scope, uid, position, actor)

    async def disable(self, scope: Scope, uid: UUID, actor: Actor, *, disabled: bool = True) -> User:
        return await self._registry.users.disable(scope, uid, actor, disabled=disabled)
