"""Cases of user reports in a deployment, stored as guard stores them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID, uuid4

from mailwarden.crypto.keyring import read_ring
from mailwarden.database.pool import Database
from mailwarden.model.scope import Scope
from mailwarden.user_reports.cases.model import NewCaseReport
from mailwarden.user_reports.cases.store import CaseStore
from mailwarden.user_reports.mailbox.report_mail import ReportFormat
from mailwarden.user_reports.reports import ContentsSeal, Kind
from tests.acceptance.deployment import Deployment
from tests.acceptance.held import _run

ANN = "ann@company.example"
PER_DAY = 10_000


def report_case(
    deployment: Deployment,
    tenant: str = "acme",
    *,
    subject: str = "Your mailbox is full",
    sender: str = "helpdesk@parcels.example",
    reporters: Sequence[str] = (ANN,),
    kind: Kind = Kind.PHISHING,
    ggrid: str | None = None,
    campaign: UUID | None = None,
    contents: bytes | None = None,
) -> str:
    """Have each reporter report one message, and return the uid of the case."""
    uid = UUID(deployment.tenants[tenant])
    seal = ContentsSeal(read_ring(deployment.product.abby.folder / "secrets" / "contents", "contents.key"))
    digest = uuid4().bytes * 2

    def made(reporter: str) -> NewCaseReport:
        report = uuid4()
        return NewCaseReport(
            uid=report,
            tenant=uid,
            mail=uuid4().bytes * 2,
            number=0,
            reporter=reporter,
            verified=True,
            kind=kind,
            format=ReportFormat.ATTACHED,
            subject=subject,
            sender=sender,
            ggrid=UUID(ggrid) if ggrid else None,
            campaign=campaign,
            digest=digest,
            contents=seal.close(contents, report) if contents else None,
            answered=True,
        )

    async def work(database: Database) -> UUID | None:
        store, today = CaseStore(database), datetime.now(UTC).date()
        added = [await store.add(Scope.of(uid), made(each), today, PER_DAY) for each in reporters]
        return added[-1].case

    case = _run(deployment, work)
    assert case is not None
    return str(case)
