"""guard's configuration: `guard/core/guard.yml`, and the check of the YARA rules that it names."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Union

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from mailwarden.engines import table
from mailwarden.engines.engine import EngineSettings
from mailwarden.events.scanned import Selection
from mailwarden.history.settings import HistoryStoreSettings
from mailwarden.journal.settings import JournalSettings
from mailwarden.quarantine.settings import GuardQuarantine
from mailwarden.serving.tls import ABBY_NAME, name_mistakes
from mailwarden.settings.reader import Mistake, Mistakes
from mailwarden.settings.reload import Reloadable
from mailwarden.settings.shared import (
    PORTS,
    Contents,
    Count,
    Database,
    Listen,
    Log,
    Milliseconds,
    Tls,
    TracingSettings,
)
from mailwarden.smtp.settings import Connections, Smtp, is_inside
from mailwarden.user_reports.settings import ReportMailboxes
from mailwarden.weekly_report.settings import WeeklyReportSettings

MIN_SECRET = 16

Public = Annotated[
    bool, Meta(description="Allows a `listen.host` that is neither loopback nor private; needs the secret.")
]
WithoutSecret = Annotated[
    bool,
    Meta(
        description="Allows clients without a secret: every process of this host, and with a private address every "
        "host of that network, can then submit messages and read verdicts."
    ),
]
BodyTimeout = Annotated[
    int, Meta(ge=1, le=3_600_000, description="Longest wait for the next bytes of a message, in milliseconds.")
]


PATH = "guard/core/guard.yml"
# Training has its own connections and job, so it needs a restart.
RELOADABLE = Reloadable(
    keys=(
        "mainWorkerCount",
        "maxGuardRequestsInProcessing",
        "guardRequestThrottleThreshold",
        "maxThrottleDelay",
        "maxBytesInFlight",
        "onEngineFailure",
        "engines",
        "workers.memory",
        "workers.structureTimeout",
        "workers.parseTimeout",
        "workers.analyzerTimeout",
        "yara.rules",
        "tls.clientNames",
    ),
    except_last=("training",),
)


class RspamdApiListen(Listen, frozen=True, rename="camel", forbid_unknown_fields=True):
    port: Annotated[int, PORTS, Meta(description="Port to listen on; 0 takes a free one.")] = 11433


class RspamdApi(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The scan source that answers clients of Rspamd; see docs/integrations.md."""

    listen: Annotated[RspamdApiListen, Meta(description="Listener for Rspamd clients, plain HTTP.")] = RspamdApiListen()
    public: Public = False
    allow_without_secret: WithoutSecret = False
    password: Annotated[
        str, Meta(description="Value of the header `Password`; required without `allowWithoutSecret`.")
    ] = ""
    quarantine_as: Annotated[
        Literal["reject", "add header", "discard"],
        Meta(description="Action for the decision quarantine; the client stores nothing, so `reject` is the default."),
    ] = "reject"
    max_connections: Connections = 200
    body_timeout: BodyTimeout = 30_000

    def mistakes(self) -> Iterator[tuple[str, str]]:
        secret = self.password
        if not secret and not self.public and not self.allow_without_secret:
            problem = "is needed; without one `allowWithoutSecret: true` lets every process that reaches the port ask"
            yield "password", problem
        if not self.public and not is_inside(self.listen.host):
            problem = (
                f"`{self.listen.host}` is not a loopback or private address. Messages would pass in the open, and "
                "guard trusts every client of this port; `public: true` and a password allow it"
            )
            yield "listen", problem
        if self.public and not secret:
            yield "password", "is needed where `public: true` lets others than this host and private networks ask"
        if secret and (len(secret) < MIN_SECRET or any(not "!" <= character <= "~" for character in secret)):
            problem = f"must be {MIN_SECRET} or more printable ASCII characters without blanks: it goes into a header"
            yield "password", problem


if TYPE_CHECKING:
    AnySettings = EngineSettings
else:  # the type of each engine in the table
    AnySettings = Union[tuple(engine.settings_type for engine in table.ENGINES)]  # noqa: UP007 - made from a table


class RestApi(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The scan source that takes messages from abby; it has no settings of its own."""


class ScanSources(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    rest_api: Annotated[
        RestApi | None,
        Meta(description="`restApi: {}` enables the Email Scanning API; without it scanning is disabled."),
    ] = None
    smtp: Annotated[
        Smtp | None, Meta(description="`smtp: {}` enables SMTP beside Postfix; without it nothing listens.")
    ] = None
    rspamd_api: Annotated[
        RspamdApi | None,
        Meta(description="`rspamdApi: {password: …}` answers clients of Rspamd; without it nothing listens."),
    ] = None


class Workers(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The killable processes that parse hostile bytes."""

    count: Annotated[int | None, Meta(description="Worker processes; the number of cores if unset.")] = None
    heavy_count: Annotated[
        int | None,
        Meta(
            description="Additional worker processes for heavy messages, at a lower priority; half of "
            "`count`, at least 1, if unset."
        ),
    ] = None
    memory: Annotated[int, Meta(ge=256, le=65_536, description="Memory limit of one worker, in MiB.")] = 1_024
    structure_timeout: Annotated[
        Milliseconds, Meta(description="Longest structure check, in milliseconds of CPU time.")
    ] = 1_000
    parse_timeout: Annotated[Milliseconds, Meta(description="Longest parse, in milliseconds of CPU time.")] = 10_000
    analyzer_timeout: Annotated[
        Milliseconds, Meta(description="Longest run of one local analyzer, in milliseconds of CPU time.")
    ] = 15_000

    sandbox: Annotated[
        Literal["required", "disabled"],
        Meta(
            description="`required`: guard does not start without the sandbox. `disabled`: workers run "
            "with all rights of guard."
        ),
    ] = "required"

    @property
    def effective_count(self) -> int:
        return self.count or os.cpu_count() or 1

    @property
    def effective_heavy_count(self) -> int:
        return self.heavy_count or max(1, self.effective_count // 2)

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.count is not None and not 1 <= self.count <= 512:
            yield "count", "must be between 1 and 512"
        if self.heavy_count is not None and not 1 <= self.heavy_count <= self.effective_count:
            problem = f"must be between 1 and count ({self.effective_count}): heavy messages use at most half of all"
            yield "heavyCount", problem


class History(HistoryStoreSettings, frozen=True, rename="camel", forbid_unknown_fields=True):
    retention_days: Annotated[Count, Meta(description="Days of history to keep.")] = 90


class Events(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The event outbox; see docs/events.md."""

    scanned: Annotated[
        Selection,
        Meta(description="Which scanned messages get an event: `all`, `notClean` (all but verdict clean) or `none`."),
    ] = "all"
    sample: Annotated[
        float, Meta(gt=0, le=1, description="The share of these messages that get an event; 0.1 is every tenth.")
    ] = 1.0
    retention_days: Annotated[int, Meta(ge=4, le=90, description="Days for which events can be read again.")] = 14


class Lists(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    replica: Annotated[
        str, Meta(description="Folder for the local copy of all lists; guards of one host may share it.")
    ] = "lists"


class Yara(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    rules: Annotated[
        str, Meta(description="Folder of your own YARA rules (`*.yar`), each file a namespace; none if empty.")
    ] = ""


class Domains(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Knowledge about domains beside the shipped one; see docs/operating.md."""

    folder: Annotated[
        str,
        Meta(
            description="Folder of your own knowledge about domains: `popular.bin` replaces the shipped table of "
            "popular domains (`mailwarden popular-domains` makes it), `companies.yml` adds groups of domains that "
            "belong to one company. Shipped data alone if empty. A change needs a restart."
        ),
    ] = ""


class Training(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Retention of reported messages, for an engine that learns."""

    retention_days: Annotated[Count, Meta(description="Retention of training reports, in days.")] = 365


class GuardListen(Listen, frozen=True, rename="camel", forbid_unknown_fields=True):
    port: Annotated[int, PORTS, Meta(description="Port to listen on; 0 takes a free one.")] = 9785


class GuardTls(Tls, frozen=True, rename="camel", forbid_unknown_fields=True):
    certificate: Annotated[str, Meta(description="Certificate chain, PEM.")] = "tls/guard.crt"
    key: Annotated[str, Meta(description="Private key, PEM, readable only by this process.")] = "tls/guard.key"
    client_names: Annotated[
        tuple[str, ...],
        Meta(
            min_length=1,
            max_length=100,
            description="Clients that may call guard: a DNS name or IP address in the subjectAltName of their "
            "certificate. `mailwarden init` writes the default into abby's certificate.",
        ),
    ] = (ABBY_NAME,)

    def mistakes(self) -> Iterator[tuple[str, str]]:
        yield from name_mistakes("clientNames", self.client_names)


class GuardConfig(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    scan_sources: Annotated[ScanSources, Meta(description="The interfaces through which guard receives messages.")] = (
        ScanSources()
    )
    main_worker_count: Annotated[
        Count | None, Meta(description="Guard requests this guard is sized for; 20 if unset.")
    ] = None
    max_guard_requests_in_processing: Annotated[
        Count | None,
        Meta(
            description="Guard requests in processing at which guard rejects further ones; `mainWorkerCount` if unset."
        ),
    ] = None
    guard_request_throttle_threshold: Annotated[
        Count | None,
        Meta(description="Guard requests in processing at which linear throttling starts; `mainWorkerCount` if unset."),
    ] = None
    max_throttle_delay: Annotated[
        Milliseconds, Meta(description="Longest delay of the throttling band, in milliseconds.")
    ] = 2_000
    max_bytes_in_flight: Annotated[
        int,
        Meta(ge=52_428_800, description="Bytes of messages in processing; beyond it guard rejects requests."),
    ] = 536_870_912
    on_engine_failure: Annotated[
        Literal["undecided", "tempfail"],
        Meta(description="`undecided` returns 200 with decision undecided; `tempfail` returns 503 engine_unavailable."),
    ] = "undecided"
    analysis_timeout: Annotated[Milliseconds, Meta(description="Longest analysis of one message, in milliseconds.")] = (
        90_000
    )
    shutdown_grace_period: Annotated[
        Milliseconds, Meta(description="Time to finish running requests after SIGTERM, in milliseconds.")
    ] = 30_000
    name: Annotated[str, Meta(description="This guard's name in history and status; the host name if empty.")] = ""
    listen: Annotated[GuardListen, Meta(description="guard's listener for abby.")] = GuardListen()
    health: Annotated[
        Listen | None,
        Meta(
            description="A second listener, plain HTTP, with `/healthz` and `/readyz` alone: for probes without a "
            "client certificate, such as those of Kubernetes. Without it nothing listens."
        ),
    ] = None
    tls: Annotated[
        GuardTls,
        Meta(description="guard's certificate, and the clients that may call guard with a certificate of `ca`."),
    ] = GuardTls()
    engines: Annotated[
        dict[str, AnySettings],
        Meta(
            description="The engines by name. `type` says what an engine is, where its name does not; a required "
            "engine that is missing has its defaults."
        ),
    ] = {}
    workers: Workers = Workers()
    history: History = History()
    journal: JournalSettings = JournalSettings()
    events: Events = Events()
    lists: Lists = Lists()
    yara: Yara = Yara()
    domains: Domains = Domains()
    training: Training = Training()
    contents: Contents = Contents()
    quarantine: GuardQuarantine = GuardQuarantine()
    weekly_report: Annotated[
        WeeklyReportSettings | None,
        Meta(description="The weekly report by email, through `nextHop` of the scan source `smtp`; unset: no email."),
    ] = None
    reports: Annotated[
        ReportMailboxes | None,
        Meta(description="Report mailboxes of users; needs the scan source `smtp` for the answers. Unset: no mailbox."),
    ] = None
    database: Database = Database()
    spool: Annotated[str, Meta(description="Folder for messages over 1 MiB while they are analyzed.")] = "spool"
    log: Log = Log()
    tracing: TracingSettings = TracingSettings()

    def __post_init__(self) -> None:
        force_setattr(self, "engines", table.complete(self.engines))

    @property
    def max_in_processing(self) -> int:
        return self.max_guard_requests_in_processing or self.main_worker_count or 20

    @property
    def throttle_threshold(self) -> int:
        return self.guard_request_throttle_threshold or self.main_worker_count or 20

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.throttle_threshold > self.max_in_processing:
            threshold, maximum = self.throttle_threshold, self.max_in_processing
            problem = f"is {threshold}, above maxGuardRequestsInProcessing ({maximum}): throttling could never start"
            yield "guardRequestThrottleThreshold", problem
        if self.weekly_report is not None and self.scan_sources.smtp is None:
            yield "weeklyReport", "needs the scan source `smtp`: its nextHop receives the emails"
        if self.reports is not None and self.scan_sources.smtp is None:
            yield "reports", "needs the scan source `smtp`: it receives the reports, and its nextHop the answers"
        for problem in table.mistakes(self.engines):
            yield "engines", problem


def rules_folder(config: GuardConfig, folder: Path) -> str:
    """Return the folder of YARA rules, or "" if none is configured."""
    return str(folder / config.yara.rules) if config.yara.rules else ""


def domains_folder(config: GuardConfig, folder: Path) -> str:
    """Return the folder of the operator's knowledge about domains, or "" if none is configured."""
    return str(folder / config.domains.folder) if config.domains.folder else ""


def rule_mistakes(config: GuardConfig, folder: Path) -> list[Mistake]:
    """Return every error in the YARA rules; an empty folder is an error."""
    if not config.yara.rules:
        return []
    from mailwarden.analysis.analyzers import yara  # noqa: PLC0415 - loads all file readers

    rules = folder / config.yara.rules
    if not yara.may_compile():
        problem = "cannot be compiled: this process may not execute memory that it wrote. Set MemoryDenyWriteExecute=no"
        return [Mistake(str(rules), 1, "", f"{problem} in the unit of guard, or leave yara.rules out")]
    _, problems = yara.compile_rules(rules)
    if not problems and not yara.rule_files(rules):
        return [Mistake(str(rules), 1, "", "holds no rules: put *.yar files there, or leave yara.rules out")]
    return [Mistake(problem.file, problem.line, "", problem.sentence) for problem in problems]


def check_rules(config: GuardConfig, folder: Path) -> None:
    """Raise if the YARA rules have errors: guard does not start without rules that the operator relies on."""
    if mistakes := rule_mistakes(config, folder):
        raise Mistakes(mistakes)
