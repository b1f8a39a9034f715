"""The contract of engines: external programs that scan messages, with the capabilities that they declare.

The rest of the product asks for a capability and never for an engine by its name. An engine is added by a module with
its settings and its class, and by a line in `table.py`.
"""

import asyncio
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, ClassVar, Generic, Protocol, TypeAlias, TypeVar

from msgspec import Meta, Struct

from mailwarden.analysis.analyzer import EngineAnswer, EngineFailed, Known, RawMessage
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import FailureKind, Report

Count = Annotated[int, Meta(ge=1, le=100_000)]
Milliseconds = Annotated[int, Meta(ge=1, le=3_600_000)]
LEARNER_HEADER = "X-Mailwarden-Learner"  # of a request to an engine that learns: the tenant whose statistics count
Announce = Callable[[str], None]
T = TypeVar("T")


class EngineSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, tag_field="type"):
    """The settings of one engine; each type of engine has its own, tagged with its name."""


S_co = TypeVar("S_co", bound=EngineSettings, covariant=True)


class EngineInfo(Struct, frozen=True):
    """The version of an engine; `signatures` is the version of its signatures, if it has any."""

    detail: str
    version: str = ""
    signatures: str = ""
    signatures_made: datetime | None = None


class Diagnosis(Struct, frozen=True):
    """One line of `mailwarden doctor`: whether something of an engine works, what was seen, and what to do."""

    well: bool
    name: str
    seen: str
    remedy: str = ""


class Teacher(Protocol):
    """Trains an engine that learns: each learner has statistics of its own."""

    async def teach(self, message: bytes, learner: str, *, threat: bool) -> bool:
        """Train the engine with a message; return False if the engine cannot learn it."""

    async def forget(self, learner: str) -> int:
        """Remove the statistics of a learner; return how many records are gone."""

    async def check(self) -> None:
        """Raise EngineFailed if the engine does not keep the statistics of learners apart."""

    async def close(self) -> None: ...


class Engine(ABC, Generic[S_co]):
    """One configured engine. The class declares the capabilities."""

    type_name: ClassVar[str]  # in `engines:` of guard.yml, and the first part of its findings' names
    title: ClassVar[str]  # for people
    settings_type: ClassVar[type[EngineSettings]]
    # `mailwarden init` asks for the address where this is not empty, and writes it into guard.yml.
    shipped_address: ClassVar[str] = ""

    required: ClassVar[bool] = True  # it always runs, and without its answer an analysis is incomplete
    convicts_files: ClassVar[bool] = False  # its findings are about files: it can be asked about one of them
    authenticates: ClassVar[bool] = False  # its answers have `authentication`
    learns: ClassVar[bool] = False  # its answers may depend on a tenant's reports: it is asked for each learner
    reads_contents: ClassVar[bool] = False  # it is also asked about the decoded parts of an ambiguous message
    unpacks: ClassVar[bool] = False  # it opens archives and pictures, which may take long for few bytes
    accepts_malformed: ClassVar[bool] = False  # it is asked about a message that trips a structure limit, too

    def __init__(self, name: str, settings: S_co) -> None:
        self.name = name
        self._settings = settings

    @property
    def location(self) -> str:
        """Return where the engine is, for people."""
        return str(getattr(self._settings, "address", ""))

    @property
    def remedy(self) -> str:
        """Return what an operator can do where the engine does not answer."""
        return f"start it, or set engines.{self.name}.address in guard.yml"

    @abstractmethod
    async def check(self) -> EngineInfo:
        """Return the version of the engine, or raise EngineFailed if it does not answer."""

    async def diagnose(self, announce: Announce) -> AsyncIterator[Diagnosis]:
        """Yield what is wrong with the engine's own configuration; `announce` reports a step that takes long."""
        nothing: tuple[Diagnosis, ...] = ()
        for line in nothing:
            yield line

    def teacher(self) -> Teacher | None:
        """Return what trains the engine, or None if it does not learn or training is not configured."""
        return None


class ScanEngine(Engine[S_co]):
    """An engine that is asked about the bytes of every message."""

    @property
    @abstractmethod
    def timeout(self) -> float:
        """Return the longest wait for one answer, in seconds."""

    @abstractmethod
    async def examine(self, raw: RawMessage, envelope: Envelope, learner: str = "") -> EngineAnswer:
        """Ask the engine; raise EngineFailed if it cannot finish. The caller holds the deadline.

        An engine that learns uses the statistics of the learner; without a learner it uses none.
        """


class ConfirmingEngine(Engine[S_co]):
    """An engine that checks what the others reported, when they are done."""

    @abstractmethod
    async def confirm(self, known: Known, until: float) -> Report:
        """Report whether the answers of the other engines can be relied on, before `until` (monotonic)."""


AnyEngine: TypeAlias = Engine[EngineSettings]


def address_mistakes(key: str, address: str) -> Iterator[tuple[str, str]]:
    """Yield the mistake of an address that is neither a Unix socket nor host and port."""
    kind, _, rest = address.partition(":")
    if kind == "unix" and rest.startswith("/"):
        return
    host, _, port = rest.rpartition(":")
    if kind == "tcp" and host and port.isdigit() and 0 < int(port) < 65536:
        return
    yield key, f"`{address}` is not an address: write unix:/path/to/socket or tcp:host:port"


def closed_socket(name: str, address: str, remedy: str) -> Diagnosis | None:
    """Return what is wrong where this user may not write to an engine's socket (unix(7))."""
    kind, _, path = address.partition(":")
    if kind != "unix" or not Path(path).exists() or os.access(path, os.R_OK | os.W_OK):
        return None
    found = Path(path).stat()
    owner = f"owner {found.st_uid}, group {found.st_gid}, mode {stat.S_IMODE(found.st_mode):04o}"
    seen = f"{path}: permission denied ({owner}, running as {os.getuid()})"
    return Diagnosis(False, f"{name} socket", seen, f"add this user to the socket's group, or {remedy}")


async def within(seconds: float, answer: Coroutine[object, object, T]) -> T:
    """Wait for an engine's answer as long as guard does; no answer is a failure of the engine."""
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        raise EngineFailed(FailureKind.TIMEOUT, f"no answer within {seconds:.0f} s") from None
