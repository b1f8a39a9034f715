"""The weekly report as data: the week, its figures and those of the week before, and the sentences for a manager."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID

from msgspec import Struct

from mailwarden.errors import SchemaViolation
from mailwarden.history.store import ATTACKS, Attacked, DayFigures
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.tenant import Profile

DAYS = 7
MAX_WEEKS = 12  # full weeks that a user may choose from; the figures of days are kept a little longer
MONITOR = "policy.monitor"  # the tag of messages that the profile `balanced` would not have delivered
_WEEK = re.compile(r"(\d{4})-W(\d{2})")


class Week(Struct, frozen=True, order=True):
    """An ISO week, from Monday 00:00 UTC."""

    monday: date

    @classmethod
    def before(cls, moment: datetime) -> "Week":
        """Return the last week that had ended by then."""
        today = moment.astimezone(UTC).date()
        return cls(today - timedelta(days=today.weekday() + DAYS))

    @classmethod
    def parse(cls, text: str) -> "Week":
        """Return the week that `str` wrote, or raise SchemaViolation."""
        found = _WEEK.fullmatch(text)
        try:
            if found:
                return cls(date.fromisocalendar(int(found[1]), int(found[2]), 1))
        except ValueError:
            pass
        raise SchemaViolation("A week is written as 2026-W46.")

    def __str__(self) -> str:
        year, number, _ = self.monday.isocalendar()
        return f"{year:04d}-W{number:02d}"

    @property
    def begin(self) -> datetime:
        return datetime.combine(self.monday, time(), UTC)

    @property
    def end(self) -> datetime:
        return self.begin + timedelta(days=DAYS)

    @property
    def sunday(self) -> date:
        return self.monday + timedelta(days=DAYS - 1)

    @property
    def title(self) -> str:
        number = self.monday.isocalendar()[1]
        return f"week {number}, {self.monday:%Y-%m-%d} to {self.sunday:%Y-%m-%d}"

    def earlier(self, weeks: int = 1) -> "Week":
        return Week(self.monday - timedelta(days=DAYS * weeks))


def recent_weeks(now: datetime) -> Sequence[Week]:
    """Return the weeks that a report can be about, the last full week first."""
    last = Week.before(now)
    return [last.earlier(number) for number in range(MAX_WEEKS)]


def checked_week(text: str, now: datetime) -> Week:
    """Return the week of a text, or the last full week for an empty one; raise SchemaViolation for any other week."""
    weeks = recent_weeks(now)
    week = Week.parse(text) if text else weeks[0]
    if week not in weeks:
        raise SchemaViolation(f"Reports are about full weeks, from {weeks[-1]} to {weeks[0]}.")
    return week


class Actions(Struct, frozen=True):
    """The actions of users in a week; None if the time was up before they were counted."""

    held: int | None = None  # messages that came into quarantine and are still on its record
    released: int | None = None  # held messages that a user released
    released_dangerous: int | None = None  # the same, with the verdict phishing, fraud or malware
    deleted: int | None = None
    reported: Mapping[str, int] | None = None  # messages that users reported, by kind
    list_changes: int | None = None

    @property
    def complete(self) -> bool:
        return None not in (self.held, self.released, self.reported)

    @property
    def reported_threats(self) -> int | None:
        """Messages that users reported as phishing or spam."""
        return None if self.reported is None else sum(self.reported.get(kind, 0) for kind in ("phishing", "spam"))

    @property
    def corrected(self) -> int | None:
        """False positives that users corrected: reported as good, or released with training."""
        return None if self.reported is None else sum(self.reported.get(kind, 0) for kind in ("good", "released"))


class Figure(Struct, frozen=True):
    """A number of messages in the week and in the week before; None if it is not known."""

    name: str
    now: int | None
    before: int | None = None
    query: str = ""  # the search that lists these messages

    @property
    def change(self) -> str:
        """Return the change as text, such as `+12 %`."""
        if self.now is None or self.before is None:
            return "not known"
        if self.now == self.before:
            return "same"
        if not self.before:
            return f"+{self.now:,}"
        return f"{100 * (self.now - self.before) / self.before:+.0f} %"


class WeeklyReport(Struct, frozen=True):
    """All figures of one tenant in one week; `missing_days` of it were not counted."""

    tenant: UUID
    tenant_name: str
    profile: Profile
    week: Week
    figures: DayFigures
    before: DayFigures
    attacked: Attacked
    actions: Actions
    actions_before: Actions

    @property
    def messages(self) -> int:
        return _messages(self.figures)

    @property
    def missing_days(self) -> int:
        return DAYS - len(self.figures.counted)

    @property
    def missing_days_before(self) -> int:
        return DAYS - len(self.before.counted)

    @property
    def attacks(self) -> int:
        return _attacks(self.figures)

    @property
    def attacks_before(self) -> int | None:
        return self._known_before(_attacks(self.before))

    @property
    def complete(self) -> bool:
        return not self.missing_days and self.attacked.complete and self.actions.complete

    @property
    def headline_figures(self) -> Sequence[Figure]:
        """Return the figures at the top of the report."""
        own, before = self.actions, self.actions_before
        figures = [
            self._counted("Messages scanned", ""),
            Figure("Attacks", self.attacks, self.attacks_before, _any_of(ATTACKS)),
            self._counted("Undecided", f"decision:{Decision.UNDECIDED}"),
            Figure("Held in quarantine", own.held, before.held),
            Figure("Released", own.released, before.released),
            Figure("Reported by users", own.reported_threats, before.reported_threats),
        ]
        if self.profile is Profile.MONITOR or self.figures.total(MONITOR):
            would = self._counted("Would not have been delivered", MONITOR)
            figures.insert(2, Figure(would.name, would.now, would.before, f"tag:{MONITOR}"))
        return figures

    @property
    def shares(self) -> Sequence[tuple[str, Sequence[Figure]]]:
        """Return the verdicts and the decisions that occurred in either week."""
        verdicts = [self._counted(str(each), f"verdict:{each}") for each in Verdict]
        decisions = [self._counted(str(each), f"decision:{each}") for each in Decision]
        return [
            (title, [figure for figure in figures if figure.now or figure.before])
            for title, figures in (("Verdict", verdicts), ("Decision", decisions))
        ]

    @property
    def user_figures(self) -> Sequence[Figure]:
        """Return the figures of the actions of users."""
        own, before = self.actions, self.actions_before
        return [
            Figure("Messages released", own.released, before.released),
            Figure("Dangerous messages released", own.released_dangerous, before.released_dangerous),
            Figure("Held messages deleted", own.deleted, before.deleted),
            Figure("Reported as phishing or spam", own.reported_threats, before.reported_threats),
            Figure("False positives corrected", own.corrected, before.corrected),
            Figure("Changes of lists", own.list_changes, before.list_changes),
        ]

    def _counted(self, name: str, measure: str) -> Figure:
        def count(figures: DayFigures) -> int:
            return figures.total(measure) if measure else _messages(figures)

        return Figure(name, count(self.figures), self._known_before(count(self.before)), measure)

    def _known_before(self, number: int) -> int | None:
        """Return a figure of the week before, or None if not all its days were counted."""
        return None if self.missing_days_before else number


def _messages(figures: DayFigures) -> int:
    return sum(figures.total(f"decision:{each}") for each in Decision)


def _attacks(figures: DayFigures) -> int:
    return sum(figures.total(f"verdict:{attack}") for attack in ATTACKS)


def _any_of(verdicts: Sequence[Verdict]) -> str:
    return f"verdict:{','.join(verdicts)}"


def sentences_of(report: WeeklyReport) -> Sequence[str]:
    """Return the report in plain sentences, for a manager."""
    return [
        _traffic(report),
        _danger(report),
        *_monitor(report),
        *_undecided(report),
        *_people(report),
        *_incomplete(report),
    ]


def _traffic(report: WeeklyReport) -> str:
    if not report.messages:
        return "No messages were scanned in this week."
    text = f"{number_of(report.messages, 'message was', 'messages were')} scanned"
    (figure, *_) = report.headline_figures
    if figure.before is None:
        return f"{text}. The week before is not known."
    if figure.before == figure.now:
        return f"{text}, as many as in the week before."
    if not figure.before:
        return f"{text}; none in the week before."
    word = "more" if report.messages > figure.before else "fewer"
    percent = abs(100 * (report.messages - figure.before) / figure.before)
    return f"{text}, {percent:.0f} % {word} than in the week before ({figure.before:,})."


def _danger(report: WeeklyReport) -> str:
    if not report.messages:
        return "So there were no attacks."
    if not report.attacks:
        return "No message was malware, phishing, fraud or spoofed."
    named = [(attack, count) for attack in ATTACKS if (count := report.figures.total(f"verdict:{attack}"))]
    parts = ", ".join(f"{count:,} {each}" for each, count in named)
    text = f"{number_of(report.attacks, 'was an attack', 'were attacks')}: {parts}"
    before = report.attacks_before
    compared = "" if before is None else f" The week before there were {before:,}."
    return f"{text}.{compared}"


def _monitor(report: WeeklyReport) -> Sequence[str]:
    would = report.figures.total(MONITOR)
    if report.profile is not Profile.MONITOR and not would:
        return ()
    return (
        f"The tenant is monitored only: {number_of(would, 'message was', 'messages were')} delivered that would have "
        "been quarantined or rejected."
        if report.profile is Profile.MONITOR
        else f"While the tenant was monitored only, {number_of(would, 'message was', 'messages were')} delivered that "
        "would have been quarantined or rejected.",
    )


def _undecided(report: WeeklyReport) -> Sequence[str]:
    undecided = report.figures.total(f"decision:{Decision.UNDECIDED}")
    if not undecided:
        return ()
    return (f"{number_of(undecided, 'message was', 'messages were')} not decided: a part of the analysis failed.",)


def _people(report: WeeklyReport) -> Sequence[str]:
    actions, texts = report.actions, []
    if actions.released_dangerous:
        dangerous = number_of(actions.released_dangerous, "message", "messages")
        texts.append(f"Users released {dangerous} with the verdict phishing, fraud or malware. Check them.")
    if actions.corrected:
        texts.append(f"Users corrected {number_of(actions.corrected, 'false positive', 'false positives')}.")
    if actions.reported_threats:
        reported = number_of(actions.reported_threats, "message", "messages")
        texts.append(f"Users reported {reported} as phishing or spam.")
    return texts


def _incomplete(report: WeeklyReport) -> Sequence[str]:
    texts = []
    if report.missing_days:
        days = number_of(report.missing_days, "day", "days")
        texts.append(f"This report is incomplete: {days} of the week {'was' if report.missing_days == 1 else 'were'} "
                     "not counted.")  # fmt: skip
    if not report.attacked.complete:
        texts.append("This report is incomplete: there are more attacks than could be read in time.")
    if not report.actions.complete:
        texts.append("This report is incomplete: the actions of users could not be read in time.")
    return texts


def number_of(count: int, one: str, many: str) -> str:
    """Return a count with its words."""
    return f"{count:,} {one if count == 1 else many}"
