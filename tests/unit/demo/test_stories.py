"""The stories of the demo: readable, made up throughout, and the same each time."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mailwarden.access.users import Role
from mailwarden.demo.mail import write
from mailwarden.demo.stories import Book, Planned, moment_of, plan, read_book
from mailwarden.errors import MailwardenError

NOW = datetime(2026, 11, 19, 15, 0, tzinfo=UTC)
PEOPLE = """
tenants:
  - {name: northbridge, display: Northbridge Engineering, domains: [northbridge.example],
     people: [{name: petra.lang, display: Petra Lang, address: petra.lang@northbridge.example, language: de}]}
users: [{name: nora.falk, display: Nora Falk, address: nora.falk@tidewater-it.example, role: analyst}]
"""
STORY = """
- story: bill
  about: A bill
  messages:
    - {from: "Tools <tools@tools.example>", to: [petra.lang], days: 3.5, subject: "Bill %s", text: "Hello {first}"}
"""
NAMES = re.compile(r"@([A-Za-z0-9.-]+)|https?://([A-Za-z0-9.-]+)")
NETWORKS = ("192.0.2", "198.51.100", "203.0.113")  # RFC 5737
NUMBERS = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")


@pytest.fixture(scope="module")
def book() -> Book:
    return read_book()


@pytest.fixture(scope="module")
def messages(book: Book) -> list[Planned]:
    return plan(book, NOW)


def with_story(folder: Path, text: str) -> list[Planned]:
    (folder / "people.yml").write_text(PEOPLE, "utf-8")
    (folder / "bill.yml").write_text(text, "utf-8")
    return plan(read_book(folder), NOW)


def test_the_demo_has_enough_messages_in_two_weeks(messages: list[Planned]) -> None:
    assert len(messages) >= 800
    moments = [message.moment for message in messages]
    assert moments == sorted(moments)
    assert NOW - timedelta(days=16) < moments[0]
    assert NOW - timedelta(days=1) < moments[-1] <= NOW


def test_the_demo_is_the_same_each_time(book: Book, messages: list[Planned]) -> None:
    again = plan(book, NOW)
    assert again == messages
    assert [write(message) for message in again[:50]] == [write(message) for message in messages[:50]]


def test_no_name_and_no_address_of_the_demo_is_real(messages: list[Planned]) -> None:
    for message in messages:
        text = "\n".join(
            (
                *(message.sender, message.envelope, message.helo, *message.recipients, message.reply_to),
                *(message.subject, message.text, message.html, *message.headers.values()),
                *(file.text for file in message.attachments),
            )
        )
        for names in NAMES.findall(text):
            host = "".join(names).rstrip(".").lower()
            assert host.endswith(".example") or NUMBERS.fullmatch(host), (message.story, host)
        for number in (*NUMBERS.findall(text), message.ip):
            assert number.rpartition(".")[0] in NETWORKS


def test_every_role_and_every_part_of_the_demo_is_there(book: Book) -> None:
    people = book.people
    assert {user.role for user in people.users} == set(Role)
    assert len(people.tenants) == 3
    assert len({story.story for story in book.stories}) == len(book.stories)
    assert people.lists
    assert people.outages
    assert any(update.state == "waiting" for feed in people.feeds for update in feed.updates)


@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        ("%s", "{price}", "no value for {price}"),
        ("%s", "{lists.nothing}", "no value for {lists.nothing}"),
        ("petra.lang", "somebody.else", "no person named `somebody.else`"),
        ("subject:", "colour: red, subject:", "bill.yml:5: [0].messages[0].colour: unknown key"),
        ("tools@tools.example", "tools", "has no address"),
    ],
)
def test_a_mistake_of_a_story_is_named(tmp_path: Path, old: str, new: str, mistake: str) -> None:
    with pytest.raises(MailwardenError, match=re.escape(mistake)):
        with_story(tmp_path, STORY.replace(old, new))


def test_the_places_of_a_text_are_filled(tmp_path: Path) -> None:
    [message] = with_story(tmp_path, STORY.replace("%s", "{number} for {company}, {date}"))
    assert re.fullmatch(r"Bill \d{6} for Northbridge Engineering, 16\.11\.2026", message.subject)
    assert message.text == "Hello Petra"
    assert message.envelope == "tools@tools.example"


@pytest.mark.parametrize(
    ("days", "moment"),
    [
        (3.5, datetime(2026, 11, 16, 12, 30, tzinfo=UTC)),
        (1.0, datetime(2026, 11, 19, 0, 0, tzinfo=UTC)),
        (0.5, datetime(2026, 11, 19, 7, 48, 45, tzinfo=UTC)),
        (0.0, NOW),
    ],
)
def test_days_ago_end_now(days: float, moment: datetime) -> None:
    assert moment_of(days, NOW) == moment
