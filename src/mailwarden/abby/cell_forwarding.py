"""Forwards calls and messages to the cell of their tenant.

A call with an API key of another cell goes there as it is, with the caller's own credential. A message goes to the
cell of each recipient's tenant, with the secret between the cells; the strictest of the results is the answer. A
deployment key or token that names a tenant of another cell gets the address of that cell.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

import msgspec
from aiohttp import web
from msgspec.structs import replace

from mailwarden.abby.access import api_key, is_api_key
from mailwarden.abby.cell_peers import CELL_HEADER, CellPeers
from mailwarden.abby.guard_client import form_of, submission_of
from mailwarden.access.keys import ApiKeys
from mailwarden.access.tenants import TenantDirectory
from mailwarden.cells.fleet import FleetDirectory, Split
from mailwarden.errors import MailwardenError, StorageUnavailable, TenantInOtherCell, TenantMoving
from mailwarden.model.outcome import Decision, Verdict, severity
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import RecipientGroup, Tenant
from mailwarden.policy.shared_answer import MIXED_TAG
from mailwarden.serving.http_app import Call, Handler
from mailwarden.serving.uploads import Upload
from mailwarden.wire.scanning import MessageAnalysisRequest, MessageAnalysisResult

_LOSES_MAIL = (Decision.BOUNCE, Decision.DROP)

LocalScan = Callable[[Upload, MessageAnalysisRequest], Awaitable[MessageAnalysisResult]]


class CellForwarding:
    def __init__(self, fleet: FleetDirectory, peers: CellPeers, keys: ApiKeys) -> None:
        self._fleet = fleet
        self._peers = peers
        self._keys = keys

    def wrapped(self, handler: Handler) -> Handler:
        """Return a handler that forwards the calls of other cells' API keys, and accepts forwarded calls."""

        async def forwarded(call: Call) -> web.StreamResponse:
            if CELL_HEADER in call.request.headers:
                known = self._peers.from_peer(call)
                await self._check_key(call, forwarded=True)
                return await self._handled(handler, known)
            cell = await self._home_of_key(call)
            if cell is not None:
                return await self._peers.relay(cell, call)
            await self._check_key(call, forwarded=False)
            return await self._handled(handler, call)

        return forwarded

    async def _handled(self, handler: Handler, call: Call) -> web.StreamResponse:
        try:
            return await handler(call)
        except TenantInOtherCell:
            await self._check_key(call, forwarded=True, fresh=True)
            raise

    async def _home_of_key(self, call: Call) -> str | None:
        """Return the other cell of a genuine API key that is not valid here."""
        authorization = call.request.headers.getall("Authorization", ())
        if not is_api_key(authorization):
            return None
        try:
            key_id = self._keys.id_in(api_key(authorization))
            cell = self._fleet.cell_of_key(key_id) if key_id is not None else None
            if key_id is None or cell is None or await self._keys.is_valid_here(key_id):
                return None
        except StorageUnavailable:  # the other cell does not need this cell's database
            return cell
        except MailwardenError:
            return None  # the handler rejects it
        return cell

    async def _check_key(self, call: Call, *, forwarded: bool, fresh: bool = False) -> None:
        """Raise TenantMoving for a genuine key that a cell expects here, and that is not: it moves just now."""
        authorization = call.request.headers.getall("Authorization", ())
        try:
            key_id = self._keys.id_in(api_key(authorization)) if is_api_key(authorization) else None
            if fresh and key_id is not None:
                self._keys.forget(key_id)
            expected = key_id is not None and (forwarded or self._fleet.lists_key_here(key_id))
            if key_id is None or not expected or await self._keys.is_known_here(key_id):
                return
            self._keys.forget(key_id)  # it may have arrived since it was looked for
            if await self._keys.is_known_here(key_id):
                return
        except MailwardenError:
            return  # the handler rejects it
        raise TenantMoving("The tenant of this API key is being moved; try again.", retry_after=1)

    def split(self, call: Call, parameters: MessageAnalysisRequest) -> Split:
        """Return the recipients by cell; a message from another cell must have recipients of this one alone."""
        recipients = parameters.border_mta_data.envelope_recipients
        if not call.cell:
            return self._fleet.split(parameters.tenant_uid, recipients)
        if not self._fleet.has(parameters.tenant_uid, recipients):
            raise TenantInOtherCell(f"A recipient has no tenant in the cell `{self._fleet.name}`.")
        return Split(recipients, {}, frozenset())

    async def wait_for_switch(self, call: Call, scope: Scope, parameters: MessageAnalysisRequest) -> None:
        """Wait for a moment if a tenant of the message is just being switched to this cell."""
        recipients = parameters.border_mta_data.envelope_recipients
        await self._fleet.wait_for_switch(scope, parameters.tenant_uid, recipients, forwarded=bool(call.cell))

    async def refresh(self) -> None:
        """Read the directory again, after a cell has rejected a recipient."""
        await self._fleet.try_refresh()

    async def scan(
        self,
        call: Call,
        upload: Upload,
        parameters: MessageAnalysisRequest,
        *,
        split: Split,
        ggrid: UUID,
        deadline: float,
        local: LocalScan,
    ) -> MessageAnalysisResult:
        """Scan a message in the cells of its recipients; one part without a result leaves all without."""
        alone = len(split.elsewhere) == 1 and not split.local

        async def remote(cell: str, recipients: Sequence[str]) -> MessageAnalysisResult:
            part = upload if alone else _part_of(upload, parameters, recipients)
            submission = submission_of(part) if part.body is not None else form_of(part.email, part.parameters)
            return await self._peers.submit(cell, submission, call, str(ggrid), deadline)

        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(_outcome(remote(cell, those))) for cell, those in split.elsewhere.items()]
            if split.local:
                border = replace(parameters.border_mta_data, envelope_recipients=split.local)
                own = replace(parameters, border_mta_data=border)
                running.append(tasks.create_task(_outcome(local(_part_of(upload, own, split.local), own))))
        return strictest([_result_of(task.result()) for task in running])


async def _outcome(work: Awaitable[MessageAnalysisResult]) -> MessageAnalysisResult | MailwardenError:
    """Return the error instead of raising it: the other parts finish, and the first error is the answer."""
    try:
        return await work
    except MailwardenError as error:
        return error


def _result_of(outcome: MessageAnalysisResult | MailwardenError) -> MessageAnalysisResult:
    if isinstance(outcome, MailwardenError):
        raise outcome
    return outcome


def _part_of(upload: Upload, parameters: MessageAnalysisRequest, recipients: Sequence[str]) -> Upload:
    """Return the upload for some of its recipients; it shares the message, and is not closed."""
    border = replace(parameters.border_mta_data, envelope_recipients=tuple(recipients))
    return Upload("", msgspec.json.encode(replace(parameters, border_mta_data=border)), upload.email, None)


def strictest(results: Sequence[MessageAnalysisResult]) -> MessageAnalysisResult:
    """Return one answer for all recipients, as `shared_answer` does for tenants of one cell.

    A `drop` or `bounce` that the other cells do not share is a `quarantine`: it must not lose their mail.
    """
    if len(results) == 1:
        return results[0]
    leading = max(results, key=lambda each: severity(Decision(each.decision), Verdict(each.verdict)))
    shared = len({each.decision for each in results}) == 1
    decision = leading.decision if shared or leading.decision not in _LOSES_MAIL else Decision.QUARANTINE
    return replace(
        leading,
        created=min(each.created for each in results),
        completed=max(each.completed for each in results),
        decision=decision,
        tags=tuple(sorted({*leading.tags, MIXED_TAG})),
    )


class FleetTenants:
    """The tenants of this cell, for APIs: a tenant of another cell is an error with the address of that cell."""

    def __init__(self, directory: TenantDirectory, fleet: FleetDirectory, peers: CellPeers) -> None:
        self._directory = directory
        self._fleet = fleet
        self._peers = peers

    def known(self, scope: Scope) -> Sequence[Tenant]:
        return self._directory.known(scope)

    def group(self, tenant_uid: UUID | None, recipients: Sequence[str]) -> tuple[RecipientGroup, ...]:
        """Return the recipients by tenant; raise for a recipient of another cell."""
        for cell in self._fleet.split(tenant_uid, recipients).elsewhere:
            raise self._elsewhere(cell)
        return self._directory.group(tenant_uid, recipients)

    async def find(self, tenant_uid: UUID) -> Tenant | None:
        """Return a tenant of this cell; callers ask only for tenants that they may see."""
        await self._fleet.wait_for_switch(Scope.of(tenant_uid), tenant_uid)
        found = await self._directory.find(tenant_uid)
        home = self._fleet.home_of_tenant(tenant_uid)
        if home is not None:
            raise self._elsewhere(home.cell)
        return found

    def _elsewhere(self, cell: str) -> TenantInOtherCell:
        address = self._peers.url_of(cell) or "which this cell does not know"
        return TenantInOtherCell(f"The tenant is in the cell `{cell}`: {address}. Send the call there.")
