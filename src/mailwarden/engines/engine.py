"""The contract of engines: external programs that scan messages, with the capabilities that they declare.

The rest of the product asks for a capability and never for an engine by its name. An engine is added by a module with
its settings and its class, and by a line in `table.py`. `SocketEngine` is the base of engines that listen on a socket.
"""

import asyncio
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeAlias, TypeVar, cast

from msgspec import Struct

from mailwarden.analysis.analyzer import EngineAnswer, EngineFailed, Known
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import FailureKind, Report
from mailwarden.model.scan import RawMessage
from mailwarden.settings.shared import Count, Milliseconds

CONNECT_TIMEOUT = 2.0
BATCH = 262_144
MAX_PROBE_ANSWER = 65_536  # not inspection: an engine's own answer

CLASSIFIER_HEADER = (
    "X-Mailwarden-Classifier"  # of a request to an engine that learns: the tenant whose statistics count
)
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
    """Trains an engine that learns: each classifier has statistics of its own."""

    async def teach(self, message: bytes, classifier: str, *, threat: bool) -> bool:
        """Train the engine with a message; return False if the engine cannot learn it."""

    async def forget(self, classifier: str) -> int:
        """Remove the statistics of a classifier; return how many records are gone."""

    async def check(self) -> None:
        """Raise EngineFailed if the engine does not keep the statistics of classifiers apart."""

    async def close(self) -> None: ...


class ShippedFiles(Struct, frozen=True):
    """The settings that Mailwarden ships for a program: `mailwarden engines install` puts them on a Debian host."""

    program: str
    home: str  # this folder shows that the program is installed
    folders: tuple[tuple[str, str], ...]  # a folder of the shipped files, and the folder where the program reads them
    service: str  # to restart


class Engine(ABC, Generic[S_co]):
    """One configured engine. The class declares the capabilities."""

    type_name: ClassVar[str]  # in `engines:` of guard.yml, and the first part of its findings' names
    title: ClassVar[str]  # for people
    settings_type: ClassVar[type[EngineSettings]]
    # `mailwarden init` asks for the address where this is not empty, and writes it into guard.yml.
    shipped_address: ClassVar[str] = ""
    shipped_files: ClassVar[ShippedFiles | None] = None

    required: ClassVar[bool] = True  # it always runs, and without its answer an analysis is incomplete
    convicts_files: ClassVar[bool] = False  # its findings are about files: it can be asked about one of them
    authenticates: ClassVar[bool] = False  # its answers have `authentication`
    learns: ClassVar[bool] = False  # its answers may depend on a tenant's reports: it is asked for each classifier
    reads_contents: ClassVar[bool] = False  # it is also asked about the decoded parts of an ambiguous message
    unpacks: ClassVar[bool] = False  # it opens archives and pictures, which may take long for few bytes
    accepts_malformed: ClassVar[bool] = False  # it is asked about a message that trips a structure limit, too

    def __init__(self, name: str, settings: S_co) -> None:
        self.name = name
        self._settings = settings

    @property
    def location(self) -> str:
        """Return the address of the engine for messages to people, or "" if it has none."""
        return ""

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
    async def ask(self, raw: RawMessage, envelope: Envelope, classifier: str = "") -> EngineAnswer:
        """Ask the engine; raise EngineFailed if it cannot finish. The caller holds the deadline.

        An engine that learns uses the statistics of the classifier; without a classifier it uses none.
        """


class SocketSettings(EngineSettings, frozen=True):
    """The settings of an engine that listens on a socket; an engine adds defaults and descriptions."""

    address: str
    timeout: Milliseconds
    max_concurrency: Count

    def mistakes(self) -> Iterator[tuple[str, str]]:
        yield from address_mistakes("address", self.address)


Socket_co = TypeVar("Socket_co", bound=SocketSettings, covariant=True)


class SocketEngine(ScanEngine[Socket_co]):
    """An engine that listens on a socket and closes the connection after each answer."""

    def __init__(self, name: str, settings: Socket_co) -> None:
        super().__init__(name, settings)
        self._connection = EngineConnection(self.title, settings.address, settings.max_concurrency)

    @property
    def location(self) -> str:
        return self._settings.address

    @property
    def timeout(self) -> float:
        return self._settings.timeout / 1000


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


class Exchange(asyncio.Protocol):
    """One request and its answer; the answer is whole when the engine has closed the connection."""

    def __init__(self, limit: int) -> None:
        loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[bytes] = loop.create_future()
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0
        self._room: asyncio.Future[None] | None = None

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > self._limit and not self.answer.done():
            sentence = f"The engine answered more than {self._limit} bytes."
            self.answer.set_exception(EngineFailed(FailureKind.UNFINISHED, sentence))

    def connection_lost(self, exc: Exception | None) -> None:
        self.resume_writing()
        if self.answer.done():
            return
        if exc is not None:
            self.answer.set_exception(exc)
        else:
            self.answer.set_result(b"".join(self._pieces))

    def pause_writing(self) -> None:
        self._room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    async def wait_for_room(self) -> None:
        """Wait while the engine takes bytes more slowly than they are written."""
        if self._room is not None:
            await self._room


class EngineConnection:
    """Sends requests to one engine, each on a connection of its own, and a limited number at once."""

    def __init__(self, name: str, address: str, max_concurrency: int) -> None:
        self._name = name
        self._address = address
        self._slots = asyncio.Semaphore(max_concurrency)

    async def ask(self, request: Iterable[bytes], limit: int) -> bytes:
        """Wait for a free slot, send the request piece by piece, and return the answer, or raise EngineFailed."""
        async with self._slots:
            return await self._exchange(request, limit)

    async def probe(self, request: bytes) -> bytes:
        """Send a short request without waiting for a slot: an engine that is busy is not down."""
        return await self._exchange((request,), MAX_PROBE_ANSWER)

    async def _exchange(self, request: Iterable[bytes], limit: int) -> bytes:
        transport, exchange = await self._connect(limit)
        try:
            await _send(transport, exchange, request)
            return await exchange.answer
        except OSError as error:
            cause = str(error) or type(error).__name__
            raise EngineFailed(FailureKind.UNFINISHED, f"{self._name} broke off.", cause) from error
        finally:
            transport.abort()
            exchange.answer.cancel()

    async def _connect(self, limit: int) -> tuple[asyncio.WriteTransport, Exchange]:
        loop = asyncio.get_running_loop()
        kind, _, rest = self._address.partition(":")
        try:
            if kind == "unix":
                opened = await loop.create_unix_connection(lambda: Exchange(limit), rest)
            else:
                host, _, port = rest.rpartition(":")
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    opened = await loop.create_connection(lambda: Exchange(limit), host, int(port))
        except (OSError, TimeoutError) as error:
            cause = f"{self._address}: {error or type(error).__name__}"
            raise EngineFailed(FailureKind.UNREACHABLE, f"{self._name} cannot be reached.", cause) from error
        return cast("asyncio.WriteTransport", opened[0]), opened[1]


async def _send(transport: asyncio.WriteTransport, exchange: Exchange, request: Iterable[bytes]) -> None:
    """Write the pieces many at once, and no faster than the engine takes them."""
    batch: list[bytes] = []
    size = 0
    for piece in request:
        batch.append(piece)
        size += len(piece)
        if size >= BATCH:
            _write(transport, batch)
            await exchange.wait_for_room()
            batch, size = [], 0
    _write(transport, batch)


def _write(transport: asyncio.WriteTransport, batch: list[bytes]) -> None:
    # uvloop raises on a write to a closed transport; the answer shows whether the request succeeded.
    if not transport.is_closing():
        transport.writelines(batch)
