"""Calendars and contacts: shown fields, people, addresses, and texts that are no proper calendar."""

import io
import zipfile
from email.message import EmailMessage

import pytest

from mailwarden.analysis.text.calendars import Calendar, read_calendar
from mailwarden.analysis.view import View
from mailwarden.message.addresses import Address
from mailwarden.message.coverage import Coverage
from mailwarden.message.parser import parse_message
from mailwarden.model.place import WHOLE_MESSAGE

EVENT = (
    'BEGIN:VCALENDAR\r\nMETHOD:REQUEST\r\nBEGIN:VEVENT\r\nORGANIZER;CN="North, Ada":mailto:ADA@north.example\r\n'
    "ATTENDEE;CN=Bob:mailto:bob@south.example\r\nSUMMARY:Rev\r\n iew\\, part 2\r\n"
    "DESCRIPTION:One\\nhttps://x.exam\r\n\tple/a\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
)


def calendar_of(text: str) -> Calendar:
    return read_calendar(text, Coverage(), WHOLE_MESSAGE)


def test_folded_and_escaped_fields_are_read():
    read = calendar_of(EVENT)
    assert read.entries == ("Review, part 2", "One\nhttps://x.example/a", "North, Ada")
    assert read.organizers == (Address("North, Ada", "ada@north.example"),)
    assert read.names == ("North, Ada", "Bob")
    assert read.invites


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("END:VEVENT\r\nEND:VCALENDAR\r\n", ""),
        ("BEGIN:VCALENDAR", "Hello\r\nBEGIN:VCALENDAR"),
        ("SUMMARY:", "SUMMARY :"),
        ("SUMMARY:", "junk\r\nSUMMARY;LANGUAGE=en:"),
        ("\r\n", "\n"),
    ],
)
def test_a_damaged_calendar_shows_its_fields(old, new):
    assert "Review, part 2" in calendar_of(EVENT.replace(old, new)).entries


@pytest.mark.parametrize("method", ["REPLY", "CANCEL", "COUNTER"])
def test_an_answer_is_no_invitation(method):
    assert not calendar_of(EVENT.replace("REQUEST", method)).invites


def test_markup_in_a_field_is_read_as_programs_show_it():
    read = calendar_of(EVENT.replace("One", '<b>O</b>ne &amp\\; <a href="https://y.example/b">two</a>'))
    assert any("O ne &  two" in entry for entry in read.entries)
    assert any('href="https://y.example/b"' in page for page in read.pages)


def test_an_invitation_inside_an_archive_is_part_of_the_text():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("invite.ics", EVENT)
    message = EmailMessage()
    message["From"] = "ada@north.example"
    message.set_content("See the file.")
    message.add_attachment(packed.getvalue(), "application", "zip", filename="invite.zip")
    view = View(parse_message(message.as_bytes()))
    assert "Review, part 2" in view.text
    assert "https://x.example/a" in {link.url for link in view.links}
    assert view.calendars[0].invites


def test_attendees_are_searched_apart_from_the_text():
    message = EmailMessage()
    message["From"] = "ada@north.example"
    message.set_content("See the invitation.")
    message.add_attachment(EVENT, "calendar", filename="invite.ics")
    view = View(parse_message(message.as_bytes()))
    assert "Bob" not in view.text
    assert any("Bob" in text for text in view.other_texts)
