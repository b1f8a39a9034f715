"""What a search of history answers: rows newest first, and where to go on."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.record import FinishedRequest

MAX_ROWS = 200


class Row(Struct, frozen=True):
    """One message as a list of messages shows it."""

    ggrid: UUID
    tenant: UUID
    created: datetime
    from_address: str
    from_name: str
    recipients: tuple[str, ...]
    subject: str
    verdict: Verdict
    decision: Decision
    tags: tuple[str, ...]
    summary: str


class Cursor(Struct, frozen=True, order=True):
    """A place in history: rows stand in the order of their ggrid, and under one ggrid in that of their tenant.

    Without a tenant it is the place before all rows of the ggrid.
    """

    ggrid: UUID
    tenant: UUID = UUID(int=0)

    def __str__(self) -> str:
        return f"{self.ggrid}~{self.tenant}" if self.tenant.int else str(self.ggrid)

    @classmethod
    def read(cls, text: str) -> "Cursor":
        """Return the place that `str` wrote, or raise ValueError."""
        ggrid, _, tenant = text.partition("~")
        return cls(UUID(ggrid), UUID(tenant) if tenant else UUID(int=0))

    @classmethod
    def of(cls, row: Row | FinishedRequest) -> "Cursor":
        return cls(row.ggrid, row.tenant)


class Page(Struct, frozen=True):
    """Rows newest first. `older` is where to go on, and None where there is nothing older.

    A search that met few rows may stop before it has looked at all of its time range: then it is not `complete`,
    `searched_to` says how far it came, and `older` goes on from there.
    """

    rows: tuple[Row, ...]
    older: Cursor | None = None
    complete: bool = True
    searched_to: datetime | None = None


class Count(Struct, frozen=True):
    """How many messages there are: exactly, or those counted so far with an estimate of all."""

    counted: int
    exact: bool
    estimate: int


def row_of(request: FinishedRequest) -> Row:
    return Row(
        ggrid=request.ggrid,
        tenant=request.tenant,
        created=request.created,
        from_address=request.summary.from_address or request.envelope.sender,
        from_name=request.summary.from_name,
        recipients=request.envelope.recipients,
        subject=request.summary.subject,
        verdict=request.judgement.verdict,
        decision=request.ruling.decision,
        tags=request.tags,
        summary=request.judgement.summary,
    )
