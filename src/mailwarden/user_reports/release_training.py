"""A released message is reported as harmless: a user asked for it."""

from mailwarden.errors import MessageNotFound
from mailwarden.model.scope import Actor, Scope
from mailwarden.quarantine.model import HeldMessage
from mailwarden.serving.spool import Spooled
from mailwarden.user_reports.reports import Kind, MessageCollector
from mailwarden.user_reports.service import ReportService


class ReleaseTraining:
    """Reports a released message as harmless: a user asked for it."""

    def __init__(self, reports: ReportService) -> None:
        self._reports = reports

    async def released(self, message: HeldMessage, raw: Spooled, requested_by: str) -> None:
        intake = MessageCollector()
        async for chunk in raw.stream():
            intake.add(chunk)
        given, scope, actor = intake.finish(), Scope.of(message.tenant), Actor(requested_by)
        try:
            await self._reports.report_message(scope, str(message.ggrid), Kind.RELEASED, actor, given)
        except MessageNotFound:  # no longer in history
            await self._reports.report_contents(scope, message.tenant, Kind.RELEASED, actor, contents=given)
