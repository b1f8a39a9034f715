"""The installation on this host: its two configuration files, and the files and folders that they name."""

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from mailwarden.abby.config import PATH as ABBY_PATH
from mailwarden.abby.config import AbbyConfig
from mailwarden.errors import CommandError
from mailwarden.guard.config import PATH as GUARD_PATH
from mailwarden.guard.config import GuardConfig
from mailwarden.settings.reader import read
from mailwarden.settings.shared import Quarantine

FILES = (GUARD_PATH, ABBY_PATH)


class Installation(Struct, frozen=True):
    """The configuration of one or both processes, below one folder."""

    folder: Path
    guard: GuardConfig | None
    abby: AbbyConfig | None

    @property
    def database_url(self) -> str:
        return self._any.database.url

    @property
    def direct_url(self) -> str:
        """Return the address for pg_dump and pg_restore, which need a session of their own."""
        settings = self._any.database
        if settings.pooled and not settings.direct_url:
            raise CommandError(
                "database.url is a connection pooler, and pg_dump needs a session of its own. "
                "Set database.directUrl to the address of PostgreSQL, or of HAProxy in front of it."
            )
        return settings.direct_url or settings.url

    @property
    def quarantine(self) -> Quarantine:
        return self._any.quarantine

    @property
    def _any(self) -> GuardConfig | AbbyConfig:
        config = self.guard or self.abby
        assert config is not None
        return config

    def folders(self) -> dict[str, Path]:
        """Return the folders of state and spool by their kind."""
        found = {"spool": self.folder / self._any.spool}
        if self.guard is not None and self.abby is not None and self.abby.spool != self.guard.spool:
            found["abbySpool"] = self.folder / self.abby.spool
        if self.quarantine.bucket is None:
            found["vault"] = self.folder / self.quarantine.store
        if self.guard is not None:
            found["replica"] = self.folder / self.guard.lists.replica
            found["journal"] = self.guard.journal.place(self.folder, self.guard.lists.replica)
        return {kind: Path(os.path.normpath(path)) for kind, path in found.items()}

    def outside_files(self) -> list[Path]:
        """Return the existing files that the configuration names outside its folder."""
        found = (Path(os.path.normpath(self.folder / name)) for name in self._named_files())
        outside = [path for path in found if not path.is_relative_to(self.folder)]
        files = [each for path in outside for each in (sorted(path.rglob("*")) if path.is_dir() else [path])]
        return list(dict.fromkeys(path for path in files if path.is_file()))

    def _named_files(self) -> Iterator[str]:
        configs = (self.guard, self.abby)
        for config in (each for each in configs if each is not None):
            yield from (config.tls.ca, config.tls.certificate, config.tls.key, config.contents.key)
            if config.quarantine.bucket is not None:
                yield config.quarantine.credentials
        if self.guard is not None and self.guard.yara.rules:
            yield self.guard.yara.rules
        if self.abby is not None:
            yield self.abby.api_key_pepper
            if self.abby.public_tls is not None:
                yield from (self.abby.public_tls.certificate, self.abby.public_tls.key)
            login = self.abby.console.open_id_connect
            if login is not None:
                yield from filter(None, (login.client_secret_file, login.ca))


def read_installation(folder: Path, files: Path | None = None) -> Installation:
    """Read the configuration of a folder; `files` is the place of the two files if they are elsewhere."""
    place = files or folder
    found = Installation(
        folder,
        read(place / GUARD_PATH, GuardConfig) if (place / GUARD_PATH).exists() else None,
        read(place / ABBY_PATH, AbbyConfig) if (place / ABBY_PATH).exists() else None,
    )
    if found.guard is None and found.abby is None:
        raise CommandError(f"{folder} has no configuration of abby or guard.")
    return found
