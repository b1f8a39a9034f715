"""What abby and guard tell each other besides the public records: headers of a submission, and guard's status."""

from datetime import datetime

from msgspec import Struct

GGRID_HEADER = "Mailwarden-Ggrid"
DEADLINE_HEADER = "Mailwarden-Deadline-Ms"
REQUEST_ID_HEADER = "X-Request-Id"
TENANT_HEADER = "Mailwarden-Tenant"
TENANT_BY_HEADER = "Mailwarden-Tenant-By"
PROFILE_HEADER = "Mailwarden-Profile"
WEIGHTS_HEADER = "Mailwarden-Weights"  # a JSON object of the rules that weigh otherwise for the tenant
PROGRESS_HEADER = "Mailwarden-Progress"  # "yes": a line for each analyzer as it finishes, see wire/progress
STORE_HEADER = "Mailwarden-Store"  # "no": neither history nor the hits of list entries keep the message

SUBMIT_PATH = "/v1/messageQueue/submitEmail"
GUARD_STATUS_PATH = "/v1/guard/status"
GUARD_CONFIGURATION_PATH = "/v1/guard/configuration"


class EngineState(Struct, frozen=True, rename="camel"):
    name: str
    up: bool
    required: bool
    detail: str = ""
    version: str = ""
    signatures: str = ""  # the number of the signatures in use, where an engine has some
    signatures_made: datetime | None = None


class GuardStatus(Struct, frozen=True, rename="camel"):
    """How one guard is doing, as abby asks it for the status colour."""

    name: str
    version: str
    in_processing: int
    max_in_processing: int
    engines: tuple[EngineState, ...]
    database_up: bool
    scanning_enabled: bool
    stopping: bool = False
    lists_loaded: bool = True  # whether there are lists to scan with, however old
    lists_lag_seconds: float | None = None  # how old they may be at most
    max_waiting: int = 0  # guard requests that may wait for admission besides those in processing
    worker_sandbox: tuple[str, ...] = ()  # the active layers of the worker sandbox; none: it is disabled
