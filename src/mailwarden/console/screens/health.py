"""Health: the guards and their engines, and the configuration in force with its source."""

from collections.abc import Sequence

from aiohttp import web

from mailwarden.console.deployment import Deployment
from mailwarden.console.page import Page
from mailwarden.console.rights import Right
from mailwarden.console.visit import Visit


class HealthScreen:
    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/health", Right.HEALTH, self.show),
            Page("GET", "/health/state", Right.HEALTH, self.show_state, quiet=True),
        ]

    async def show(self, visit: Visit) -> web.StreamResponse:
        return visit.render(
            "health/index.html",
            await self._state(),
            configurations=await self._deployment.configurations(),
        )

    async def show_state(self, visit: Visit) -> web.StreamResponse:
        """Return the part of the page that changes, for a page that stays open."""
        return visit.render("health/state.html", await self._state())

    async def _state(self) -> dict[str, object]:
        return {
            "colour": await self._deployment.colour(),
            "guards": self._deployment.guards(),
            "database_up": self._deployment.database_up(),
        }
