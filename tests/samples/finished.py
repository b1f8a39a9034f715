"""A finished guard request with every field filled."""

from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID, uuid4

import msgspec

from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence, Failure, FailureKind, Finding, Report, Status
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.outcome import Decision, Judgement, Reason, Ruling, Step, Verdict
from mailwarden.model.place import Place
from mailwarden.model.record import FinishedRequest, MessageSummary, PartSummary
from mailwarden.scan.list_lookup import ListLookupResult
from mailwarden.scan.shared_answer import Part

_FINDING = Finding(
    "html.link-mismatch", Place(part="1.2"), {"shown": "bank.example", "count": 3, "score": 7.5, "new": True}
)


def finished_request(
    tenant: UUID | None = None, ggrid: UUID | None = None, subject: str = "Grüße 🎁", **changes: object
) -> FinishedRequest:
    """Make a finished guard request of its own ggrid."""
    created = datetime.now(UTC)
    request = FinishedRequest(
        ggrid=ggrid or new_ggrid(),
        tenant=tenant or uuid4(),
        created=created,
        completed=created + timedelta(milliseconds=31),
        source="restApi",
        guard="guard-1.example",
        envelope=Envelope("alice@sender.example", ("bob@acme.example", "eve@acme.example"), "192.0.2.7", "mx.example"),
        summary=MessageSummary(
            size=5_120,
            sha256="ab" * 32,
            from_address="alice@sender.example",
            from_name="Alice",
            reply_to="else@sender.example",
            to=("bob@acme.example",),
            subject=subject,
            message_id="<1@sender.example>",
            date="Sun, 15 Nov 2026 02:00:00 +0000",
            parts=(PartSummary("1.1", "text/plain", "", 100, "cd" * 32),),
            url_hosts=("bank.example", "evil.example"),
        ),
        evidence=Evidence(
            (
                Report("html", True, Status.FINISHED, 1.25, (_FINDING,)),
                Report(
                    "rspamd", True, Status.FAILED, 20.0, (), Failure("rspamd", FailureKind.TIMEOUT, "Too slow."), "3.4"
                ),
            )
        ),
        judgement=Judgement(
            verdict=Verdict.PHISHING,
            summary="A link shows another place than it leads to.",
            reasons=(
                Reason(
                    "link-mismatch", "html", Verdict.PHISHING, 60, "A link lies.", Place(part="1.2"), "url.mismatch"
                ),
            ),
            points={"phishing": 60},
            tags=("url.mismatch", "analysis.incomplete"),
            incomplete=True,
        ),
        ruling=Ruling(Decision.QUARANTINE, ("policy.default-tenant",), (Step("default", "quarantine"),)),
    )
    return msgspec.structs.replace(request, **changes)


def part_of(finished: FinishedRequest) -> Part:
    """Return the part of a tenant, as a scan leaves it."""
    return Part(finished, cast("ListLookupResult", None), stored=True)
