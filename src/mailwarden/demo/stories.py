"""Reads the stories of the demo: tenants and users, their mail, and the actions that followed."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from re import Match
from re import compile as pattern
from typing import Annotated, Literal
from zlib import crc32

import msgspec
from msgspec import Meta, Struct

from mailwarden.access.users import Role
from mailwarden.errors import CommandError
from mailwarden.model.tenant import Profile
from mailwarden.settings.reader import read

FOLDER = Path(__file__).parent / "stories"
PEOPLE, VALUES = "people.yml", "values.yml"
EVENING, MORNING = 0.1, 0.9  # of a day, counted from its end: 18:00 and 07:00
CHANCE = 0.03  # of a day: how far a message may be from its place in a span

Made = Literal["pdf", "docx", "docx-macro", "xlsx", "png", "qr", "zip", "eicar", "html", "ics", "eml", "text"]
Authentication = Literal["none", "pass", "spf-pass", "dkim-pass", "fail"]
Action = Literal[
    "release", "delete", "report-phishing", "report-spam", "report-good", "close-case-malicious", "close-case-spam",
    "close-case-harmless", "block-sender", "allow-sender",
]  # fmt: skip
Language = Literal["en", "de"]
Days = Annotated[float, Meta(ge=0, le=60)]

_PLACE = pattern(r"\{([a-z_]+(?:\.[a-z_]+)?)\}")
_ADDRESS = pattern(r"<([^<>\s]+@[^<>\s]+)>|^([^<>\s]+@[^<>\s]+)$")
_WEEKDAYS = ("Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag")


class Strict(Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping of a story without unknown keys."""


class Attachment(Strict, frozen=True):
    """A file that the demo makes from the text; of a zip it is the file inside."""

    name: str
    made: Made
    text: str = ""


class After(Strict, frozen=True):
    """An action of a console user, or of a recipient, so many hours after the message."""

    hours: Annotated[float, Meta(ge=0, le=400)]
    who: str
    action: Action
    note: str = ""

    @property
    def is_report(self) -> bool:
        return self.action.startswith("report-")


class Template(Strict, frozen=True, rename={"sender": "from"}):
    """One or more messages that are alike."""

    sender: str
    to: Annotated[tuple[str | tuple[str, ...], ...], Meta(min_length=1)]  # in turn; a list: all of them at once
    days: Days | Annotated[tuple[Days, ...], Meta(min_length=2, max_length=2)]  # one moment, or first and last
    subject: str | Annotated[tuple[str, ...], Meta(min_length=1)]
    text: str
    count: Annotated[int, Meta(ge=1, le=200)] = 1
    envelope: str = ""
    ip: str = ""
    helo: str = ""
    authentication: Authentication = "none"
    reply_to: str = ""
    headers: dict[str, str] = {}
    thread: str = ""
    html: str = ""
    attachments: tuple[Attachment, ...] = ()
    after: tuple[After, ...] = ()


class Story(Strict, frozen=True):
    story: str
    about: str
    messages: Annotated[tuple[Template, ...], Meta(min_length=1)]


class Person(Strict, frozen=True):
    """A recipient."""

    name: str  # in stories
    display: str
    address: str
    job: str = ""
    language: Language = "en"
    note: str = ""


class Tenant(Strict, frozen=True):
    name: str  # in stories
    display: str
    domains: tuple[str, ...]
    people: tuple[Person, ...]
    mailboxes: tuple[Person, ...] = ()  # of teams: `tenant.*` leaves them out
    profile: Profile = Profile.BALANCED
    digest: bool = False


class User(Strict, frozen=True):
    """A user of the console; without tenants of the whole deployment."""

    name: str
    display: str
    address: str
    role: Role
    tenants: tuple[str, ...] = ()
    language: Language = "en"


class ListChange(Strict, frozen=True):
    """One change of a list of a tenant, or of the global one; `expires` is in days after the change."""

    days: Days
    scope: str
    list: str
    by: str
    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    comment: str = ""
    expires: int | None = None


class FeedUpdate(Strict, frozen=True):
    """All values of a feed at that time."""

    days: Days
    state: Literal["applied", "waiting"]
    values: tuple[str, ...]


class FeedStory(Strict, frozen=True):
    name: str
    scope: str
    list: str
    source: str
    by: str
    updates: tuple[FeedUpdate, ...]


class Outage(Strict, frozen=True):
    """An engine was down from then on."""

    engine: Literal["rspamd", "clamav"]
    days: Days
    minutes: Annotated[int, Meta(ge=1, le=1440)]


class People(Strict, frozen=True):
    """Everything of the demo but its mail."""

    tenants: Annotated[tuple[Tenant, ...], Meta(min_length=1)]
    users: Annotated[tuple[User, ...], Meta(min_length=1)]
    lists: tuple[ListChange, ...] = ()
    feeds: tuple[FeedStory, ...] = ()
    outages: tuple[Outage, ...] = ()

    def person(self, name: str) -> tuple[Person, Tenant] | None:
        everybody = ((one, tenant) for tenant in self.tenants for one in (*tenant.people, *tenant.mailboxes))
        return next((pair for pair in everybody if pair[0].name == name), None)

    def recipients(self, name: str) -> list[str]:
        """Return the names that `tenant.*` or a name stands for."""
        if name.endswith(".*"):
            named = [one.name for tenant in self.tenants if tenant.name == name[:-2] for one in tenant.people]
        else:
            named = [name] if self.person(name) else []
        if not named:
            raise CommandError(f"people.yml has no person named `{name}`.")
        return named

    def user(self, name: str) -> User | None:
        return next((user for user in self.users if user.name == name), None)


class Planned(Struct, frozen=True):
    """One message with every place filled."""

    story: str
    number: int  # of all messages, the oldest is 0
    moment: datetime
    sender: str  # as in From
    envelope: str
    ip: str
    helo: str
    authentication: Authentication
    recipients: tuple[str, ...]  # addresses
    subject: str
    text: str
    html: str
    reply_to: str
    headers: Mapping[str, str]
    attachments: tuple[Attachment, ...]
    after: tuple[After, ...]
    message_id: str
    references: tuple[str, ...] = ()


class Book(Struct, frozen=True):
    """All files of a folder."""

    people: People
    values: Mapping[str, tuple[str, ...]]
    stories: tuple[Story, ...]


def read_book(folder: Path = FOLDER) -> Book:
    """Read every file."""
    files = sorted(path for path in folder.glob("*.yml") if path.name not in (PEOPLE, VALUES))
    stories = tuple(story for path in files for story in read(path, list[Story]))
    values = read(folder / VALUES, dict[str, tuple[str, ...]]) if (folder / VALUES).exists() else {}
    return Book(read(folder / PEOPLE, People), values, stories)


def plan(book: Book, now: datetime) -> list[Planned]:
    """Return every message in the order of time; the same for the same book and moment."""
    drafts = [draft for story in book.stories for draft in _of_story(book, story, now)]
    ordered = sorted(drafts, key=lambda pair: (pair[0].moment, pair[0].message_id))
    threads: dict[str, list[str]] = {}
    planned: list[Planned] = []
    for number, (message, thread) in enumerate(ordered):
        before = threads.setdefault(f"{message.story}/{thread}", []) if thread else []
        planned.append(msgspec.structs.replace(message, number=number, references=tuple(before)))
        before.append(message.message_id)
    return planned


def _of_story(book: Book, story: Story, now: datetime) -> Iterator[tuple[Planned, str]]:
    for place, template in enumerate(story.messages):
        # `tenant.*` is all of its people, one after the other; inside a list they get one message together.
        groups: list[list[str]] = []
        for turn in template.to:
            if isinstance(turn, str):
                groups += [[key] for key in book.people.recipients(turn)]
            else:
                groups.append([key for one in turn for key in book.people.recipients(one)])
        for index in range(template.count):
            name = f"{story.story}/{place + 1}, message {index + 1}"
            keys = groups[index % len(groups)]
            yield _message(book, story, template, name=name, keys=keys, index=index, now=now), template.thread


def _message(
    book: Book, story: Story, template: Template, *, name: str, keys: Sequence[str], index: int, now: datetime
) -> Planned:
    random = Random(name)  # noqa: S311 -- the same figures each time
    moment = moment_of(_days_ago(template, index, random), now)
    people = [person for key in keys if (person := book.people.person(key))]
    fill = _filler(name, book, _facts(people[0], moment, random), index)
    sender = fill(template.sender)
    address = address_of(sender, name)
    domain = address.rpartition("@")[2]
    subjects = (template.subject,) if isinstance(template.subject, str) else template.subject
    return Planned(
        story=story.story,
        number=0,
        moment=moment,
        sender=sender,
        envelope=fill(template.envelope) or address,
        ip=template.ip or f"198.51.100.{1 + crc32(domain.encode()) % 250}",
        helo=fill(template.helo) or f"mail.{domain}",
        authentication=template.authentication,
        recipients=tuple(person.address for person, _ in people),
        subject=fill(subjects[index % len(subjects)]),
        text=fill(template.text),
        html=fill(template.html),
        reply_to=fill(template.reply_to),
        headers={key: fill(value) for key, value in template.headers.items()},
        attachments=tuple(Attachment(fill(file.name), file.made, fill(file.text)) for file in template.attachments),
        after=tuple(_own(template.after, keys, book.people, name)),
        message_id=f"<{random.getrandbits(64):016x}.{index}@{domain}>",
    )


def moment_of(days: float, now: datetime) -> datetime:
    """Return the moment so many days ago: the whole part is the day, the rest the place in it, from late to early.

    3.9 is 07:00 on the third day before today, 3.1 is 18:00: most of a day is its working hours. The rest of today is
    still to come: messages of today share the hours before now.
    """
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    day, place = divmod(days, 1)
    if place < EVENING:
        hour = 24 - place * 60
    elif place > MORNING:
        hour = (1 - place) * 70
    else:
        hour = 18 - (place - EVENING) / (MORNING - EVENING) * 11
    if day >= 1:
        return midnight + timedelta(hours=hour) - timedelta(days=day)
    return midnight + (now - midnight) * (hour / 24)


def _own(after: Iterable[After], keys: Sequence[str], people: People, name: str) -> Iterator[After]:
    """Yield what is done with this message: a person acts on what the person received."""
    for action in after:
        if people.user(action.who) is None and people.person(action.who) is None:
            raise CommandError(f"{name}: `{action.who}` is neither a user nor a person of people.yml.")
        if action.who in keys or (people.user(action.who) is not None and not action.is_report):
            yield action


def _days_ago(template: Template, index: int, random: Random) -> float:
    """Return the place of a message in its span, with a few minutes of chance."""
    if not isinstance(template.days, tuple):
        return max(0.0, template.days - index * 0.001)
    first, last = template.days
    share = index / (template.count - 1) if template.count > 1 else 0.0
    width = abs(first - last) / template.count
    chance = random.uniform(-1, 1) * min(width / 3, CHANCE)
    return min(max(first + (last - first) * share + chance, min(template.days)), 60.0)


def _facts(person: tuple[Person, Tenant], moment: datetime, random: Random) -> dict[str, str]:
    who, tenant = person
    german = who.language == "de"
    amount = f"{random.choice((random.uniform(19, 400), random.uniform(400, 9000))):,.2f}"
    return {
        "first": who.display.split()[0],
        "last": who.display.split()[-1],
        "address": who.address,
        "company": tenant.display,
        "number": str(random.randrange(100_000, 999_999)),
        "amount": amount.translate(str.maketrans(",.", ".,")) if german else amount,
        "date": f"{moment:%d.%m.%Y}" if german else f"{moment.day} {moment:%B %Y}",
        "weekday": _WEEKDAYS[moment.weekday()] if german else f"{moment:%A}",
        "tracking": f"JD{random.randrange(10**13, 10**14)}",
    }


def _filler(name: str, book: Book, facts: Mapping[str, str], index: int) -> Callable[[str], str]:
    """Return what fills the places of a text; one without a value is a mistake of the story."""

    def value(place: Match[str]) -> str:
        kind, _, chosen = place[1].partition(".")
        if kind == "lists" and (values := book.values.get(chosen)):
            return fill(values[index % len(values)])
        if place[1] not in facts:
            raise CommandError(f"{name}: there is no value for {{{place[1]}}}.")
        return facts[place[1]]

    def fill(text: str) -> str:
        return _PLACE.sub(value, text)

    return fill


def address_of(sender: str, name: str = "") -> str:
    """Return the address of a From field."""
    match = _ADDRESS.search(sender)
    if not match:
        raise CommandError(f"{name}: `{sender}` has no address.")
    return match[1] or match[2]
