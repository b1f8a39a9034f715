"""The records of `GET /v1/messages`, `GET /v1/messages/count` and `GET /v1/statistics`."""

from datetime import date, datetime
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType, field

from mailwarden.model.outcome import Decision, Verdict

MAX_PAGE = 500  # messages of one page
MAX_STREAMED = 100_000  # messages of one stream
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_GGRID = "[0-9a-d][0-9a-f]{7}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"

Text = Annotated[str, Meta(max_length=500)]
Moment = Annotated[datetime, Meta(tz=True)]
Place = Annotated[str, Meta(pattern=rf"^{_GGRID}(~{_UUID})?\Z")]
Tenant = Annotated[
    UUID | UnsetType, Meta(description="Only this tenant's messages; absent means all tenants of the credential.")
]


class SearchOrder(StrEnum):
    """The order of the messages; by points, only the newest 500 matches are compared."""

    NEWEST = "newest"
    OLDEST = "oldest"
    POINTS = "points"


class CountQuery(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The search of messages that are counted."""

    q: Annotated[Text, Meta(description="The search, in the language of the console; empty matches every message.")] = (
        ""
    )
    tenant_uid: Tenant = UNSET
    since: Annotated[Moment | UnsetType, Meta(description="Only messages whose scan began then or later.")] = UNSET
    until: Annotated[Moment | UnsetType, Meta(description="Only messages whose scan began before then.")] = UNSET


class MessagesQuery(CountQuery, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The query of a page or a stream of messages."""

    order: Annotated[SearchOrder, Meta(description="The order of the messages.")] = SearchOrder.NEWEST
    after: Annotated[Place | UnsetType, Meta(description="`next` of a page gives the page after it.")] = UNSET
    limit: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_PAGE)] | UnsetType,
        Meta(description="Maximum number of messages; absent means 100 on a page, and 100,000 in a stream."),
    ] = UNSET


class SearchResult(Struct, frozen=True, rename="camel"):
    """One message of a search; a message with recipients of several tenants is found once for each tenant."""

    ggrid: Annotated[UUID, Meta(description="Id of the message.")]
    tenant_uid: Annotated[UUID, Meta(description="The tenant of the recipients.")]
    created: Annotated[datetime, Meta(tz=True, description="Time when the scan began.")]
    verdict: Annotated[Verdict, Meta(description="The verdict: the classification of the message.")]
    decision: Annotated[Decision, Meta(description="The decision: the action for the message.")]
    from_address: Annotated[str, Meta(description="The address in From, or the envelope's sender.")]
    from_name: Annotated[str, Meta(description="The name in From.")]
    recipients: Annotated[tuple[str, ...], Meta(description="The tenant's recipients.")]
    subject: Annotated[str, Meta(description="Subject of the message.")]
    tags: Annotated[tuple[str, ...], Meta(description="All tags of the message, sorted.")]
    points: Annotated[int, Meta(description="Points of the verdict with the most.")]
    reason: Annotated[str, Meta(description="The strongest reason for the verdict.")]
    campaign: Annotated[UUID | None, Meta(description="Id of the similar messages; null if there are none.")]


class SearchResults(Struct, frozen=True, rename="camel"):
    """A page of messages, and how far the search came."""

    messages: Annotated[tuple[SearchResult, ...], Meta(description="The messages, in the order of the search.")]
    next: Annotated[str | None, Meta(description="`after` of the next page; null: there are no more messages.")]
    complete: Annotated[
        bool,
        Meta(
            description="False: the time was up before the whole period was searched, and `next` continues. Without a "
            "`next`, the newest messages may be missing."
        ),
    ]
    searched_back: Annotated[
        Moment | None, Meta(description="If not complete: the period was searched up to this time.")
    ]


class StreamEnd(Struct, frozen=True, rename="camel"):
    """The last line of a stream; a stream without it was cut."""

    end: Annotated[bool, Meta(description="True; no message has this field.")]
    messages: Annotated[int, Meta(description="Number of messages before this line.")]
    next: Annotated[str | None, Meta(description="`after` of the rest; null: there are no more messages.")]
    complete: Annotated[bool, Meta(description="False: the stream ended before the whole period was searched.")]
    searched_back: Annotated[
        Moment | None, Meta(description="If not complete: the period was searched up to this time.")
    ]


class MessageCount(Struct, frozen=True, rename="camel"):
    """The number of matches, and the newest of them by tenant, verdict, decision and state."""

    count: Annotated[int, Meta(description="Number of matches.")]
    exact: Annotated[bool, Meta(description="False: there may be more; the time was up.")]
    counted: Annotated[int, Meta(description="Number of the newest matches that the other figures count.")]
    tenants: Annotated[dict[str, int], Meta(description="Messages by tenantUid.")]
    verdicts: Annotated[dict[str, int], Meta(description="Messages by verdict.")]
    decisions: Annotated[dict[str, int], Meta(description="Messages by decision.")]
    states: Annotated[dict[str, int], Meta(description="Messages by state: held, released, reported, undecided.")]


class StatisticsQuery(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The query of the statistics of days."""

    tenant_uid: Tenant = UNSET
    since: Annotated[date | UnsetType, Meta(description="The first day (UTC); absent means six days before `to`.")] = (
        field(name="from", default=UNSET)
    )
    until: Annotated[date | UnsetType, Meta(description="The last day (UTC); absent means today.")] = field(
        name="to", default=UNSET
    )


class DayRecord(Struct, frozen=True, rename="camel"):
    """The messages of one day (UTC)."""

    day: date
    complete: Annotated[bool, Meta(description="False: the day has not ended.")]
    messages: Annotated[int, Meta(description="Number of messages.")]
    verdicts: Annotated[dict[str, int], Meta(description="Messages by verdict.")]
    decisions: Annotated[dict[str, int], Meta(description="Messages by decision.")]


class AttackRecord(Struct, frozen=True, rename="camel"):
    """A recipient or a domain, and its number of attacks."""

    value: Annotated[str, Meta(description="The address or the domain.")]
    messages: Annotated[int, Meta(description="Number of attacks: malware, phishing, fraud and spoof.")]


class TenantStatistics(Struct, frozen=True, rename="camel"):
    """The figures of days, and who was attacked most."""

    tenant_uid: Annotated[UUID | None, Meta(description="The tenant; null: all tenants of the credential.")]
    days: Annotated[tuple[DayRecord, ...], Meta(description="The days that have figures, the first day first.")]
    complete: Annotated[bool, Meta(description="False: a day of the period has not ended or has no figures.")]
    attacked_recipients: Annotated[tuple[AttackRecord, ...], Meta(description="The recipients with most attacks.")]
    attacking_domains: Annotated[tuple[AttackRecord, ...], Meta(description="The domains that sent most attacks.")]
    attacks_complete: Annotated[bool, Meta(description="False: only the newest attacks are counted.")]
