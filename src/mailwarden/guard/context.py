"""The parts of a guard that its scan sources share."""

from dataclasses import dataclass
from pathlib import Path

from mailwarden.access.tenants import TenantDirectory
from mailwarden.database.pool import Database
from mailwarden.guard.config import GuardConfig
from mailwarden.history.clickhouse.client import Clickhouse
from mailwarden.scan.admission import Admission
from mailwarden.scan.scan import Processing
from mailwarden.telemetry.metrics import Metrics
from mailwarden.telemetry.tracing import Tracing

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
