"""The records of reports and training: the kinds of reports, their state, and a tenant's statistics."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

MAX_REPORTS = 500

TenantUid = Annotated[UUID, Meta(description="The tenant.")]


class ReportKind(StrEnum):
    """The kind of a report; only a release from quarantine creates a `released` report."""

    PHISHING = "phishing"
    SPAM = "spam"
    GOOD = "good"


SaidKind = Annotated[ReportKind, Meta(description="Kind of the report.")]


class MessageReportQuery(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The query of a report about a scanned message."""

    kind: SaidKind
    tenant_uid: Annotated[
        UUID | UnsetType,
        Meta(
            description="The tenant whose filter it trains; required if the message has recipients of several tenants."
        ),
    ] = UNSET


class ReportQuery(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The query of a report with the message in its body."""

    kind: SaidKind
    tenant_uid: TenantUid


class TenantQuery(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The query of calls that concern one tenant."""

    tenant_uid: TenantUid


class ReportsQuery(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The query of a page of reports."""

    tenant_uid: TenantUid
    before: Annotated[
        Annotated[datetime, Meta(tz=True)] | UnsetType,
        Meta(description="Only reports older than this: `reportedAt` of the last one of a page gives the next page."),
    ] = UNSET
    before_uid: Annotated[
        UUID | UnsetType,
        Meta(
            description="With `before`: the `uid` of that last report. Without it, reports of the same microsecond on "
            "the next page are left out. Ignored without `before`."
        ),
    ] = UNSET
    limit: Annotated[int, Meta(ge=1, le=MAX_REPORTS, description="Maximum number of reports on one page.")] = 100


class Report(Struct, frozen=True, rename="camel"):
    """One report about a message, and the state of its training."""

    uid: Annotated[UUID, Meta(description="Id of the report, for example to withdraw it.")]
    tenant_uid: Annotated[
        UUID, Meta(description="The tenant of the message; it trains only the filter of this tenant.")
    ]
    kind: Annotated[
        str,
        Meta(
            description="Kind of the report; only the quarantine uses `released`.",
            extra_json_schema={"enum": ["released", *ReportKind]},
        ),
    ]
    state: Annotated[
        str,
        Meta(
            description="`rejected` has too little text, or GTUBE; `not-stored` is too large, or came without content.",
            extra_json_schema={"enum": ["waiting", "trained", "rejected", "not-stored"]},
        ),
    ]
    ggrid: Annotated[UUID | None, Meta(description="The analysis of the message; null if it was not named.")]
    subject: Annotated[str, Meta(description="Subject of the message; empty if the analysis was not named.")]
    size: Annotated[int, Meta(description="Bytes of the message.")]
    reported_by: Annotated[str, Meta(description="Reporter: a token, a user, or the command.")]
    reported_at: Annotated[datetime, Meta(tz=True, description="Time of the report.")]


class Reports(Struct, frozen=True, rename="camel"):
    """A page of reports, the newest first."""

    reports: tuple[Report, ...]


class Training(Struct, frozen=True, rename="camel"):
    """The number of messages that trained a tenant's filter."""

    tenant_uid: Annotated[UUID, Meta(description="The tenant.")]
    threats: Annotated[int, Meta(description="Trained messages that were reported as phishing or spam.")]
    good: Annotated[int, Meta(description="Trained messages that were reported as good or released.")]
    waiting: Annotated[int, Meta(description="Messages that wait for training.")]
    required: Annotated[
        int, Meta(description="Trained messages of each side that the statistics need before they count.")
    ]
    active: Annotated[bool, Meta(description="Whether both sides have enough messages.")]
    rebuilding: Annotated[
        bool, Meta(description="Whether the statistics are being rebuilt after a report was withdrawn.")
    ]


class DeletedReports(Struct, frozen=True, rename="camel"):
    """The response of a reset."""

    deleted: Annotated[int, Meta(ge=0, description="Number of deleted reports.")]
