"""Scans the bytes of a held message again, for messages whose first analysis was incomplete."""

from collections.abc import Sequence

import msgspec
from aiohttp import web

from mailwarden.console.auth import Page
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, see_other
from mailwarden.console.screens.quarantine import uid_in
from mailwarden.console.services import Analyses, scan_to_end
from mailwarden.history.store import HistoryStore
from mailwarden.quarantine.model import HeldMessage
from mailwarden.quarantine.service import QuarantineService
from mailwarden.wire.scanning import ScanParameters, read_parameters


class RescanScreen:
    def __init__(self, quarantine: QuarantineService, history: HistoryStore, analyses: Analyses) -> None:
        self._quarantine = quarantine
        self._history = history
        self._analyses = analyses

    def pages(self) -> Sequence[Page]:
        return [Page("POST", "/quarantine/{uid}/rescan", Permission.QUARANTINE_WRITE, self.rescan)]

    async def rescan(self, request: UserRequest) -> web.StreamResponse:
        """Scan the message again and show the new result; the held message stays as it is."""
        held = await self._quarantine.store.find(request.scope, uid_in(request.variables["uid"]))
        parameters = await self._parameters(request, held)
        raw = await self._quarantine.preview(request.scope, held.uid, request.actor)
        try:
            finished = await scan_to_end(self._analyses, request.scope, raw, parameters, request.call.request_id)
        finally:
            raw.close()
        return see_other(f"/console/messages/{finished.ggrid}", "rescanned", tenant=str(held.tenant))

    async def _parameters(self, request: UserRequest, held: HeldMessage) -> ScanParameters:
        """Return the envelope of the first scan; without its row in history, only the addresses are known."""
        border: dict[str, object] = {
            "envelopeFrom": held.sender,
            "envelopeRecipients": [recipient.address for recipient in held.recipients],
        }
        first = await self._history.find(request.scope.narrowed(held.tenant), held.ggrid)
        if first is not None:
            border |= {"remoteAddress": first.envelope.remote_address} if first.envelope.remote_address else {}
            border |= {"senderHelo": first.envelope.helo} if first.envelope.helo else {}
        return read_parameters(msgspec.json.encode({"borderMtaData": border, "tenantUid": held.tenant}))
