"""The ways into one version: submitEmail over HTTPS, guard's SMTP source with a next hop of its own, and /checkv2."""

import asyncio
import json
import re
from collections.abc import Sequence
from http.client import HTTPConnection
from types import TracebackType
from typing import Protocol, Self

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, Envelope
from msgspec import Struct

from workshop.bench.compare.answers import Answer, explained, replied
from workshop.bench.compare.messages import Message
from workshop.rig.caller import HOST, Caller, caller_context
from workshop.rig.ports import free_port
from workshop.rig.product import Product
from workshop.rig.smtp_sender import as_smtp_carries, send_as_postfix

AT_ONCE = 4  # messages of one version
PATIENCE = 120.0
HISTORY_SECONDS = 20.0  # a row of history is written a moment after the answer
_GGRID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b")
_RESULT = re.compile(rb"(?m)^(X-Mailwarden-[A-Za-z]+):((?:[^\r\n]*(?:\r\n[ \t])?)*)")
_NO_RESULT = ("x-mailwarden-ggrid", "x-mailwarden-signature")


class Reply(Struct, frozen=True):
    """What the sender of a message gets; the ggrid is empty if no message was judged."""

    said: Answer
    ggrid: str


class Way(Protocol):
    """Sends one message and returns the reply."""

    name: str

    async def send(self, message: Message) -> Reply: ...


class Https:
    """Keeps its connections, as a border MTA does."""

    name = "HTTPS"

    def __init__(self, product: Product) -> None:
        context = caller_context(product.ca)
        self._free: asyncio.Queue[Caller] = asyncio.Queue()
        for _ in range(AT_ONCE):
            self._free.put_nowait(Caller(product.abby.port, context, product.token, patience=PATIENCE))

    async def send(self, message: Message) -> Reply:
        caller = await self._free.get()
        try:
            answer = await caller.submit(message.raw, border=message.border)
        finally:
            self._free.put_nowait(caller)
        found = _GGRID.search(answer.body.decode("latin-1")) if answer.status == 200 else None
        return Reply(replied(answer.status, answer.body), found[0] if found else "")

    async def explain(self, ggrid: str) -> Answer:
        """Return verdict, decision, tags and reasons from history."""
        caller = await self._free.get()
        try:
            async with asyncio.timeout(HISTORY_SECONDS):
                while (answer := await caller.call("GET", f"/v1/messages/{ggrid}")).status != 200:
                    await asyncio.sleep(0.1)
            return explained(answer.record)
        except TimeoutError:
            return {"history": ("no row",)}
        finally:
            self._free.put_nowait(caller)

    def close(self) -> None:
        while not self._free.empty():
            self._free.get_nowait().close()


class _LenientSmtp(SMTP):
    line_length_limit = 10_000_000


class _Controller(Controller):
    def factory(self) -> SMTP:
        return _LenientSmtp(self.handler, enable_SMTPUTF8=True, data_size_limit=None, hostname="next-hop.example")


class NextHop:
    """Takes everything that guard delivers, and keeps the result fields by ggrid."""

    def __init__(self) -> None:
        self.port = free_port()
        self._results: dict[str, Answer] = {}
        self._controller = _Controller(self, hostname=HOST, port=self.port, ready_timeout=10.0)

    async def handle_DATA(self, _: object, __: object, envelope: Envelope) -> str:  # noqa: N802 - aiosmtpd's name
        ggrid, fields = result_fields(envelope.original_content or b"")
        self._results[ggrid] = fields
        return "250 OK"

    def take(self, ggrid: str) -> Answer:
        return self._results.pop(ggrid, {})

    def __enter__(self) -> Self:
        self._controller.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._controller.stop()


class Smtp:
    """Sends each message in a session of its own, as Postfix does before its queue."""

    name = "SMTP"

    def __init__(self, port: int, next_hop: NextHop) -> None:
        self._port = port
        self._next_hop = next_hop

    async def send(self, message: Message) -> Reply:
        envelope = message.envelope
        said = await asyncio.to_thread(
            send_as_postfix,
            self._port,
            as_smtp_carries(message.raw),
            envelope.sender,
            envelope.recipients,
            address=envelope.remote_address,
            helo=envelope.helo,
            patience=PATIENCE,
        )
        found = _GGRID.search(said)
        ggrid = found[0] if found else ""
        return Reply({"reply": (_GGRID.sub("ID", said),), **self._next_hop.take(ggrid)}, ggrid)


class Checkv2:
    """Sends each message to guard's port for clients of Rspamd."""

    name = "/checkv2"

    def __init__(self, port: int) -> None:
        self._port = port

    async def send(self, message: Message) -> Reply:
        return Reply(await asyncio.to_thread(self._ask, message), "")

    def _ask(self, message: Message) -> Answer:
        """Return every value of the answer, without ids, times and the signature."""
        envelope, connection = message.envelope, HTTPConnection(HOST, self._port, timeout=PATIENCE)
        connection.putrequest("POST", "/checkv2")
        named = {"From": envelope.sender, "IP": envelope.remote_address, "Helo": envelope.helo}
        for name, value in (*named.items(), *(("Rcpt", recipient) for recipient in envelope.recipients)):
            if value:
                connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(message.raw)))
        connection.endheaders(message.raw)
        response = connection.getresponse()
        text = _GGRID.sub("ID", response.read().decode())
        connection.close()
        shown = {name: str(value) for name, value in json.loads(text).items() if name not in ("time_real", "milter")}
        return {"status": (str(response.status),)} | {name: (value,) for name, value in shown.items()}


def result_fields(message: bytes) -> tuple[str, Answer]:
    """Return the ggrid and the other result fields of a delivered message."""
    head = message[: message.find(b"\r\n\r\n") + 2]
    fields = {name.decode("ascii"): value.decode("latin-1").split() for name, value in _RESULT.findall(head)}
    ggrid = next((value[0] for name, value in fields.items() if name.lower() == _NO_RESULT[0]), "")
    return ggrid, {name: sorted(value) for name, value in fields.items() if name.lower() not in _NO_RESULT}


async def send_all(way: Way, messages: Sequence[Message]) -> list[Reply]:
    """Send the messages, some at once, and return the replies in the order of the messages."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def send(message: Message) -> Reply:
        async with slots:
            return await way.send(message)

    return list(await asyncio.gather(*(send(message) for message in messages)))
