"""What the scan sources of a guard share, whatever door they stand at."""

from dataclasses import dataclass
from pathlib import Path

from mailwarden.access.tenants import TenantDirectory
from mailwarden.database.pool import Database
from mailwarden.guard.admission import Admission
from mailwarden.guard.config import GuardConfig
from mailwarden.guard.processing import Processing
from mailwarden.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True)
class GuardContext:
    config: GuardConfig
    folder: Path
    admission: Admission
    processing: Processing
    spool: Path
    database: Database
    tenants: TenantDirectory  # for the sources that are not told a tenant: filled where one of them is enabled
    metrics: Metrics
