"""Uses changed settings in a running abby: reads and checks all of them first, then replaces them together."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from mailwarden.abby.config import PATH, RELOADABLE, AbbyConfig
from mailwarden.settings.effective import effective
from mailwarden.settings.reader import read
from mailwarden.settings.reload import Changes, merge


class AbbyReload:
    """The configuration in use, and the parts that a change replaces."""

    def __init__(self, config: AbbyConfig, folder: Path) -> None:
        self.config = config
        self.settings = effective(folder / PATH, config, PATH)
        self._folder = folder
        self._parts: list[Callable[[AbbyConfig], None]] = []

    def add(self, use: Callable[[AbbyConfig], None]) -> None:
        """Call `use` with each changed configuration; it must not fail."""
        self._parts.append(use)

    async def __call__(self) -> Changes:
        """Use the configuration on disk; raise ConfigurationError, without any change, if it is invalid."""
        new = await asyncio.to_thread(read, self._folder / PATH, AbbyConfig)
        merged, changes = merge(self.config, new, RELOADABLE)
        self.config, self.settings = merged, effective(self._folder / PATH, merged, PATH)
        for use in self._parts:
            use(merged)
        return changes
