"""Analyses that a person watches: the console's way to the guards, with the same limits as the API's."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import msgspec
import structlog

from mailwarden.abby.guard_client import GuardClient, Handover, Parcel
from mailwarden.abby.scanning import Tenants
from mailwarden.console.services import Step
from mailwarden.errors import Overloaded, TenantForbidden, TenantNotFound
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.scope import Scope
from mailwarden.serving.spool import Spooled
from mailwarden.wire.scanning import MessageAnalysisRequest

MAX_WATCHED = 8  # people watch a few at once; the rest of the places is for mail


class WatchedAnalyses:
    """Implements the console's `Analyses`."""

    def __init__(self, guards: GuardClient, tenants: Tenants, *, long_request_timeout_ms: int) -> None:
        self._guards = guards
        self._tenants = tenants
        self._patience = long_request_timeout_ms / 1000
        self._watched = 0

    async def watch(
        self, scope: Scope, message: Spooled, request: MessageAnalysisRequest, *, stored: bool, request_id: str
    ) -> AsyncGenerator[Step, None]:
        """Yield what each analyzer did as it finishes, and the finished guard request as the last."""
        try:
            groups = self._tenants.group(request.tenant_uid, request.border_mta_data.envelope_recipients)
        except TenantNotFound:
            raise _forbidden() from None
        if not all(scope.allows(group.tenant) for group in groups):
            raise _forbidden()
        if self._watched >= MAX_WATCHED:
            raise Overloaded("Too many analyses are being watched; try again shortly.")
        self._guards.require_room()
        ggrid = new_ggrid()
        structlog.contextvars.bind_contextvars(ggrid=str(ggrid))
        deadline = asyncio.get_running_loop().time() + self._patience
        handover = Handover(ggrid, request.border_mta_data.envelope_recipients, groups, request_id)
        steps = self._guards.watch(packed(message, request), handover, deadline, stored=stored)
        self._watched += 1
        try:
            async with aclosing(steps):
                async for step in steps:
                    yield step
        finally:
            self._watched -= 1


def packed(message: Spooled, request: MessageAnalysisRequest) -> Parcel:
    """Wrap a message up as the API's callers do; nobody can guess the boundary, so that no message can hold it."""
    boundary = f"mailwarden-{secrets.token_hex(24)}"
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="parameters"\r\nContent-Type: application/json\r\n\r\n'
    ).encode()
    head += msgspec.json.encode(request)
    head += f'\r\n--{boundary}\r\nContent-Disposition: form-data; name="email"\r\n\r\n'.encode()
    tail = f"\r\n--{boundary}--\r\n".encode()

    async def stream() -> AsyncIterator[bytes]:
        yield head
        async for chunk in message.stream():
            yield chunk
        yield tail

    return Parcel(f"multipart/form-data; boundary={boundary}", len(head) + message.size + len(tail), stream)


def _forbidden() -> TenantForbidden:
    return TenantForbidden("You may not analyze messages for this tenant.")
