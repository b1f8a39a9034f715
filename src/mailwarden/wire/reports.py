"""The records of reports and learning: the kinds of reports, their state, and a tenant's statistics."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

MAX_REPORTS = 500

TenantUid = Annotated[UUID, Meta(description="The tenant that is meant.")]


class ReportKind(StrEnum):
    """The kind of a report; only a release from quarantine creates a `released` report."""

    PHISHING = "phishing"
    SPAM = "spam"
    FINE = "fine"


SaidKind = Annotated[ReportKind, Meta(description="Kind of the report.")]


class MessageReportQuery(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The query of a report about a scanned message."""

    kind: SaidKind
    tenant_uid: Annotated[
        UUID | UnsetType,
        Meta(description="The tenant that learns from it; needed where the message has recipients of several."),
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
    limit: Annotated[int, Meta(ge=1, le=MAX_REPORTS, description="Most reports of one page.")] = 100


class Report(Struct, frozen=True, rename="camel"):
    """One report about a message, and the state of its training."""

    uid: Annotated[UUID, Meta(description="Names the report; it is taken back by it.")]
    tenant_uid: Annotated[UUID, Meta(description="The tenant whose message it is, and who alone learns from it.")]
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
            description="`refused` has too little text, or GTUBE; `not-kept` is too large, or only its ggrid came.",
            extra_json_schema={"enum": ["waiting", "learned", "refused", "not-kept"]},
        ),
    ]
    ggrid: Annotated[UUID | None, Meta(description="The analysis of the message; null if it was not named.")]
    subject: Annotated[str, Meta(description="Subject of the message; empty if the analysis was not named.")]
    size: Annotated[int, Meta(description="Bytes of the message.")]
    reported_by: Annotated[str, Meta(description="Reporter: a token, a user, or the command.")]
    reported_at: Annotated[datetime, Meta(tz=True, description="When it was reported.")]


class Reports(Struct, frozen=True, rename="camel"):
    """A page of reports, the newest first."""

    reports: tuple[Report, ...]


class Learning(Struct, frozen=True, rename="camel"):
    """The number of messages that a tenant has learned from reports."""

    tenant_uid: Annotated[UUID, Meta(description="The tenant.")]
    threats: Annotated[int, Meta(description="Messages reported as phishing or spam that are learned.")]
    fine: Annotated[int, Meta(description="Messages called fine, or released, that are learned.")]
    waiting: Annotated[int, Meta(description="Messages that are still to be learned.")]
    enough: Annotated[int, Meta(description="Messages of each side before what was learned says anything.")]
    speaks: Annotated[bool, Meta(description="Whether there is enough of both.")]
    rebuilding: Annotated[bool, Meta(description="Whether all is being learned anew, after something was taken back.")]


class Forgotten(Struct, frozen=True, rename="camel"):
    """The response of a reset."""

    forgotten: Annotated[int, Meta(ge=0, description="Reports that were forgotten.")]
