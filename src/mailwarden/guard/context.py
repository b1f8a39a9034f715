"""The parts of a guard that its scan sources and background jobs share."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from mailwarden.access.tenants import TenantDirectory
from mailwarden.crypto.keyring import KeyRing, read_ring
from mailwarden.database.pool import Database
from mailwarden.guard.config import GuardConfig
from mailwarden.history.clickhouse.client import Clickhouse
from mailwarden.history.opening import open_history
from mailwarden.quarantine.vault import Vault, open_vault
from mailwarden.scan.admission import Admission
from mailwarden.scan.scan import Processing
from mailwarden.smtp.client import NextHop
from mailwarden.smtp.listener import greeting_name
from mailwarden.telemetry.metrics import Metrics
from mailwarden.telemetry.tracing import Tracing
from mailwarden.user_reports.cases.service import CaseService
from mailwarden.user_reports.cases.store import CaseStore
from mailwarden.user_reports.intake import ReportIntake
from mailwarden.user_reports.reports import ContentsSeal
from mailwarden.user_reports.service import ReportService
from mailwarden.user_reports.store import ReportStore

PROGRAM = "guard"


@dataclass(frozen=True, slots=True)
class GuardContext:
    config: GuardConfig
    folder: Path
    admission: Admission
    processing: Processing
    spool: Path
    database: Database
    clickhouse: Clickhouse | None  # if history is there
    tenants: TenantDirectory  # for sources that assign tenants by recipient; loaded if one of them is enabled
    metrics: Metrics
    tracing: Tracing


@dataclass(frozen=True, slots=True)
class MailParts:
    """The parts of a guard with the scan source `smtp` that deliver and hold messages."""

    name: str  # in SMTP
    hop: NextHop
    release_hop: NextHop  # the same one, unless released messages go elsewhere
    key: KeyRing
    vault: Vault
    reports: ReportIntake | None


@contextmanager
def open_mail(context: GuardContext, guard: str) -> Iterator[MailParts | None]:
    """Yield the parts, None without the scan source `smtp`; close the connections to the next hops at the end."""
    config, settings = context.config, context.config.scan_sources.smtp
    if settings is None:
        yield None
        return
    name = greeting_name(guard)
    key = read_ring(context.folder / config.contents.key, "contents.key")
    vault = open_vault(config.quarantine, context.folder, key)
    with closing(NextHop(settings.next_hop_address, settings.next_hop_timeout / 1000, name)) as hop:
        address = config.quarantine.release_address
        with closing(hop if address is None else NextHop(address, hop.timeout, "guard.localhost")) as release_hop:
            yield MailParts(name, hop, release_hop, key, vault, _report_intake(context, key))


def _report_intake(context: GuardContext, key: KeyRing) -> ReportIntake | None:
    config, database = context.config, context.database
    if config.reports is None:
        return None
    history, seal = open_history(database, clickhouse=context.clickhouse), ContentsSeal(key)
    return ReportIntake(
        config.reports,
        CaseService(CaseStore(database), history, ReportService(ReportStore(database), history, seal), seal),
        tenants=context.tenants,
        admission=context.admission,
        processing=context.processing,
        metrics=context.metrics,
    )
