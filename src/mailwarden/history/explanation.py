"""The record of `GET /v1/messages/{ggrid}`: the reasons for a verdict and a decision."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from mailwarden.model.place import shown_place
from mailwarden.model.record import FinishedRequest
from mailwarden.policy.facts import explain
from mailwarden.policy.rules import Policy


class ExplanationQuery(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The query of an explanation."""

    tenant_uid: Annotated[
        UUID | UnsetType,
        Meta(description="The tenant, if the message has recipients of several; default: the most severe decision."),
    ] = UNSET


class ReasonRecord(Struct, frozen=True, rename="camel"):
    rule: str
    analyzer: str
    verdict: str
    weight: int
    summary: str
    place: str
    tag: str


class FactRecord(Struct, frozen=True, rename="camel"):
    """The rules of one topic: their points for a verdict, and the sentence of the strongest."""

    topic: str
    verdict: str
    points: int
    sentence: str
    rules: tuple[str, ...]


class EngineRecord(Struct, frozen=True, rename="camel"):
    """The result of one analyzer: finished, failed (with the reason) or skipped, and its duration."""

    analyzer: str
    status: str
    milliseconds: float
    required: bool
    engine: str
    failure: str


class StepRecord(Struct, frozen=True, rename="camel"):
    step: str
    outcome: str


class PartRecord(Struct, frozen=True, rename="camel"):
    path: str
    media_type: str
    name: str
    size: int
    sha256: str


class LinkRecord(Struct, frozen=True, rename="camel"):
    """One link: its visible text and its target."""

    text: str
    target: str
    host: str


class HopRecord(Struct, frozen=True, rename="camel"):
    """One Received line, as far as it could be parsed."""

    from_host: str
    by_host: str
    address: str
    time: str


class EnvelopeRecord(Struct, frozen=True, rename="camel"):
    envelope_from: str
    envelope_recipients: tuple[str, ...]
    remote_address: str | None
    sender_helo: str | None


class MessageRecord(Struct, frozen=True, rename="camel"):
    """The stored facts about the message; never its body."""

    size: int
    sha256: str
    from_address: str
    from_name: str
    reply_to: str
    to: tuple[str, ...]
    subject: str
    message_id: str
    date: str
    parts: tuple[PartRecord, ...]
    url_hosts: tuple[str, ...]
    links: tuple[LinkRecord, ...] = ()
    hops: tuple[HopRecord, ...] = ()


class ListEntryRecord(Struct, frozen=True, rename="camel"):
    """The list entry that decided, and the value of the message that it matched."""

    list_name: str
    entry: str
    scope: str
    comment: str
    value: str


class MessageExplanation(Struct, frozen=True, rename="camel"):
    ggrid: UUID
    tenant_uid: UUID
    created: Annotated[datetime, Meta(tz=True)]
    completed: Annotated[datetime, Meta(tz=True)]
    decision: str
    verdict: str
    tags: tuple[str, ...]
    summary: str
    facts: Annotated[
        tuple[FactRecord, ...],
        Meta(description="At most seven facts, the strongest first; the rules of one topic are one fact."),
    ]
    reasons: Annotated[tuple[ReasonRecord, ...], Meta(description="Every matching rule.")]
    points: dict[str, int]
    engines: tuple[EngineRecord, ...]
    list_entry: ListEntryRecord | None
    decision_trace: tuple[StepRecord, ...]
    source: str
    guard: str
    envelope: EnvelopeRecord
    message: MessageRecord
    tenant_uids: Annotated[
        tuple[UUID, ...],
        Meta(description="The caller's tenants that have recipients of the message; each has its own explanation."),
    ]


def explanation_of(request: FinishedRequest, policy: Policy, tenants: Sequence[UUID] = ()) -> MessageExplanation:
    """Return a finished guard request as the record of the API; `tenants` have a row of the same ggrid."""
    envelope, summary, entry = request.envelope, request.summary, request.ruling.entry
    return MessageExplanation(
        ggrid=request.ggrid,
        tenant_uid=request.tenant,
        created=request.created,
        completed=request.completed,
        decision=request.ruling.decision,
        verdict=request.judgement.verdict,
        tags=request.tags,
        summary=request.judgement.summary,
        facts=tuple(
            FactRecord(
                fact.topic, fact.verdict, fact.points, fact.sentence, tuple(reason.rule for reason in fact.reasons)
            )
            for fact in explain(request.judgement, policy).facts
        ),
        reasons=tuple(
            ReasonRecord(r.rule, r.analyzer, r.verdict, r.weight, r.summary, shown_place(r.place), r.tag)
            for r in request.judgement.reasons
        ),
        points=request.judgement.points,
        engines=tuple(
            EngineRecord(
                analyzer=r.analyzer,
                status=r.status,
                milliseconds=r.milliseconds,
                required=r.required,
                engine=r.engine,
                failure=r.failure.sentence if r.failure else "",
            )
            for r in request.evidence.reports
        ),
        list_entry=ListEntryRecord(entry.list_name, entry.entry, entry.scope, entry.comment, entry.value[:500])
        if entry
        else None,
        decision_trace=tuple(StepRecord(s.step, s.outcome) for s in request.ruling.trace),
        source=request.source,
        guard=request.guard,
        envelope=EnvelopeRecord(envelope.sender, envelope.recipients, envelope.remote_address, envelope.helo),
        message=MessageRecord(
            size=summary.size,
            sha256=summary.sha256,
            from_address=summary.from_address,
            from_name=summary.from_name,
            reply_to=summary.reply_to,
            to=summary.to,
            subject=summary.subject,
            message_id=summary.message_id,
            date=summary.date,
            parts=tuple(PartRecord(p.path, p.media_type, p.name, p.size, p.sha256) for p in summary.parts),
            url_hosts=summary.url_hosts,
            links=tuple(LinkRecord(link.text, link.target, link.host) for link in summary.links),
            hops=tuple(HopRecord(hop.from_host, hop.by_host, hop.address, hop.time) for hop in summary.hops),
        ),
        tenant_uids=tuple(sorted(tenants)) or (request.tenant,),
    )
