"""Tells the console about the deployment: what abby knows of its guards, its tokens and its own configuration."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from mailwarden.abby.access import DEFAULT_PERMISSIONS
from mailwarden.abby.config import PATH, AbbyConfig
from mailwarden.abby.guards import GuardWatch
from mailwarden.abby.status import Status
from mailwarden.console.services import GuardView, TokenView
from mailwarden.database.pool import Database
from mailwarden.settings.effective import Setting, effective


class AbbyDeployment:
    """A Deployment of the console, as this abby sees it."""

    def __init__(self, config: AbbyConfig, folder: Path, watch: GuardWatch, status: Status, database: Database) -> None:
        self._watch = watch
        self._status = status
        self._database = database
        # Read once, at the start: a file that was changed since is not in force.
        self._settings = effective(folder / PATH, config, PATH)
        self._tokens = [
            TokenView(token.name, token.permissions or tuple(sorted(DEFAULT_PERMISSIONS)))
            for token in config.static_api_tokens
        ]

    async def colour(self) -> str:
        await self._watch.look()
        return self._status.observe().name

    def guards(self) -> Sequence[GuardView]:
        return [GuardView(guard.name, guard.status) for guard in self._watch.guards]

    def database_up(self) -> bool:
        return self._database.up

    def tokens(self) -> Sequence[TokenView]:
        return self._tokens

    async def configurations(self) -> Sequence[tuple[str, Sequence[Setting]]]:
        guards = self._watch.guards
        settings = await asyncio.gather(*(self._watch.configuration_of(guard) for guard in guards))
        return [("abby", self._settings), *((f"guard {g.name}", s) for g, s in zip(guards, settings, strict=True))]
