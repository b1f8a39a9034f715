"""All five servers: started in parallel, stopped together."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from workshop.rig.clamd import Clamd
from workshop.rig.dns import Dns
from workshop.rig.folders import empty_folder, remove_folder, service_users_can_enter, temporary_folder
from workshop.rig.postgresql import Postgresql
from workshop.rig.process import ServerProcess
from workshop.rig.redis import Redis
from workshop.rig.rspamd import Rspamd
from workshop.rig.signatures import SignatureSet


@dataclass(frozen=True, slots=True)
class Engines:
    """The servers that Mailwarden needs, in their own folder; leaving the context stops them."""

    folder: Path
    temporary: bool
    postgresql: Postgresql
    redis: Redis
    dns: Dns
    clamd: Clamd
    rspamd: Rspamd

    @property
    def servers(self) -> tuple[ServerProcess, ...]:
        return (self.postgresql, self.redis, self.dns, self.clamd, self.rspamd)

    def stop(self) -> None:
        """Stop all servers; a failure of one does not keep the others running."""
        with ThreadPoolExecutor(len(self.servers)) as threads, contextlib.ExitStack() as stack:
            if self.temporary:
                stack.callback(remove_folder, self.folder)
            for stopping in [threads.submit(server.stop) for server in self.servers]:
                stack.callback(stopping.result)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start_engines(
    folder: Path | None = None,
    *,
    rspamd_workers: int = 2,
    signature_set: SignatureSet | None = None,
    dns_records: Iterable[str] = (),
    progress: Callable[[str], None] = lambda _: None,
) -> Engines:
    """Start all servers and return when every one of them answers.

    The folder is emptied first and stays afterwards, for its logs. Without a folder, or if the users that root runs
    servers as cannot access it, the servers use a temporary folder, which is removed when they stop. The name server
    serves `dns_records` beside the zones of workshop/rig/zones.py.
    """
    usable = folder is not None and service_users_can_enter(folder)
    place = empty_folder(folder) if folder is not None and usable else temporary_folder()
    redis, dns = Redis(place / "redis"), Dns(place / "dns", dns_records)
    engines = Engines(
        place,
        not usable,
        Postgresql(place / "postgresql"),
        redis,
        dns,
        Clamd(place / "clamd", signature_set=signature_set),
        Rspamd(place / "rspamd", redis=redis.address, dns=dns.address, workers=rspamd_workers),
    )
    began = time.monotonic()

    def start(server: ServerProcess) -> None:
        server.start()
        progress(f"{server.name} answers after {time.monotonic() - began:.1f} s")

    try:
        start_together([functools.partial(start, server) for server in engines.servers], engines.servers)
    except BaseException:
        engines.stop()
        raise
    return engines


def start_together(starts: Sequence[Callable[[], None]], servers: Sequence[ServerProcess]) -> None:
    """Run the starts in parallel; the first failure, or Ctrl-C, cancels the others at once."""
    with ThreadPoolExecutor(max(1, len(starts))) as threads:
        try:
            for starting in as_completed([threads.submit(start) for start in starts]):
                starting.result()
        except BaseException:
            for server in servers:
                server.kill()
            raise


class ServerGroup:
    """Servers with a folder of their own; leaving the context stops them and removes the folder."""

    __slots__ = ()
    folder: Path

    @property
    def servers(self) -> Sequence[ServerProcess]:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self.servers:
            server.stop()
        remove_folder(self.folder)
