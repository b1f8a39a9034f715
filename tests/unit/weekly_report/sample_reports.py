"""A weekly report with figures of both weeks, and hostile text in every place that a sender can reach."""

from datetime import date, timedelta
from uuid import UUID

from msgspec.structs import replace

from mailwarden.history.store import Attacked, CampaignFigure, DayFigures
from mailwarden.model.tenant import Profile
from mailwarden.weekly_report.model import Actions, Week, WeeklyReport

WEEK = Week(date(2026, 11, 9))
TENANT = UUID("00000000-0000-4000-8000-000000000001")
HOSTILE = 'Click https://evil.example/a <script>alert(1)</script>\r\nBcc: eve@evil.example "](x)'


def days(week: Week, counts: dict[str, int], counted: int = 7) -> DayFigures:
    """Return figures that are the same on each counted day."""
    those = [week.monday + timedelta(days=number) for number in range(counted)]
    return DayFigures(dict.fromkeys(those, counts), frozenset(those))


def sample_report(**changes: object) -> WeeklyReport:
    report = WeeklyReport(
        tenant=TENANT,
        tenant_name="Acme Ltd",
        profile=Profile.BALANCED,
        week=WEEK,
        figures=days(
            WEEK,
            {
                "decision:deliver": 90, "decision:quarantine": 9, "decision:undecided": 1,
                "verdict:clean": 90, "verdict:phishing": 6, "verdict:malware": 3, "verdict:unknown": 1,
            },
        ),
        before=days(WEEK.earlier(), {"decision:deliver": 80, "verdict:clean": 79, "verdict:fraud": 1}),
        attacked=Attacked(
            recipients=(("ann@acme.example", 40), ("bob@acme.example", 2)),
            senders=(("evil.example", 41), ("xn--80ak6aa92e.example", 1)),
            campaigns=(CampaignFigure(UUID(int=7), HOSTILE, 12),),
        ),
        actions=Actions(held=63, released=4, released_dangerous=1, deleted=2, reported={"good": 3, "spam": 5},
                        list_changes=8),
        actions_before=Actions(held=0, released=4, released_dangerous=0, deleted=4, reported={}, list_changes=8),
    )  # fmt: skip
    return replace(report, **changes)
