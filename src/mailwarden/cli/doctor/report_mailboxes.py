"""The check of `mailwarden doctor` that logs in to polled report mailboxes, and shows their last poll."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from mailwarden.cli.command import shown
from mailwarden.cli.doctor.report import Host, Line
from mailwarden.cli.doctor.stored import PATIENCE, read_stored
from mailwarden.database.pool import Database
from mailwarden.errors import ConfigurationError
from mailwarden.model.scope import Scope
from mailwarden.user_reports.mailbox.imap_client import ImapClient, MailboxFailed
from mailwarden.user_reports.mailbox.store import MailboxStore, PolledMailbox
from mailwarden.user_reports.settings import ReportImap

REMEDY = "check host, tls, user and password of reports.mailboxes, and the mail server"


async def check_report_mailboxes(host: Host) -> AsyncIterator[Line]:
    """Report whether each mailbox accepts the login, and whether the guards' last poll failed."""
    if host.guard is None or host.guard.reports is None:
        return
    for settings in host.guard.reports.mailboxes:
        name = f"report mailbox {settings.address}"
        short = replace(settings, timeout=min(settings.timeout, int(PATIENCE * 1000)))
        try:
            count = await asyncio.to_thread(_count, short, host.folder)
        except (MailboxFailed, ConfigurationError) as error:
            yield Line(False, name, shown(str(error)), REMEDY)
            continue
        polled = await read_stored(host.guard.database.url, partial(_polled, settings))
        if polled is not None and polled.failing_since is not None:
            seen = f"polls fail since {polled.failing_since:%Y-%m-%d %H:%M} UTC. {shown(polled.failure)}"
            yield Line(True, name, seen, "see guard's log for report_mailbox_failed", warning=True)
        else:
            yield Line(True, name, f"login accepted, {count} mails in {settings.folder}")


def _count(settings: ReportImap, folder: Path) -> int:
    """Log in and return how many mails wait."""
    client = ImapClient(settings, folder)
    try:
        return client.open().count
    finally:
        client.close()


async def _polled(settings: ReportImap, database: Database) -> PolledMailbox | None:
    return await MailboxStore(database).find(Scope.deployment(), settings.name)
