"""What the console asks abby about the deployment: the colour, the guards, and the configuration in force."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from mailwarden.settings.effective import Setting
from mailwarden.wire.guard import GuardStatus


class GuardView(Struct, frozen=True):
    """One guard as abby sees it; without a status it did not answer."""

    name: str
    status: GuardStatus | None


class TokenView(Struct, frozen=True):
    """A static token of the Email Scanning API, without the token."""

    name: str
    permissions: tuple[str, ...]


class Deployment(Protocol):
    async def colour(self) -> str:
        """Return GREEN, YELLOW or RED, as the status of the API does."""

    def guards(self) -> Sequence[GuardView]: ...

    def database_up(self) -> bool: ...

    def tokens(self) -> Sequence[TokenView]: ...

    async def configurations(self) -> Sequence[tuple[str, Sequence[Setting]]]:
        """Return every setting of this abby and of each guard with its source; secrets are masked."""
