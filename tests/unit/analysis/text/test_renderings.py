"""What a calendar's entries say is read field by field, and nothing breaks the reader."""

from hypothesis import given
from hypothesis import strategies as st

from mailwarden.analysis.view import View
from mailwarden.message.message import Message, Part
from mailwarden.message.parser import parse_message

CALENDAR = (
    b"BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY;LANGUAGE=en:Boats\\, again\r\nDESCRIPTION:See\\nhttps://a.exa\r\n mpl"
    b"e/\r\nUID:1\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
)


def part(content, media_type="text/calendar", name=""):
    return Part("1", media_type, name, "", "utf-8", content, "")


def entries(*parts):
    return View(Message(0, "", (), parts)).entries


def test_folded_lines_and_escapes_are_read():
    for each in (
        part(CALENDAR),
        part(CALENDAR, "application/octet-stream", "a.ICS"),
        part(CALENDAR, "text/plain"),
    ):
        assert entries(each) == ("Boats, again", "See\nhttps://a.example/")


def test_an_entry_joins_the_text_once_and_its_links_the_links():
    head = b"From: a@b.example\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n\r\nBoats, again\r\n"
    raw = head + b"--x\r\nContent-Type: text/calendar\r\n\r\n" + CALENDAR + b"--x--\r\n"
    view = View(parse_message(raw))
    assert view.text.count("Boats, again") == 1
    assert "https://a.example/" in view.text
    assert [link.url for link in view.links] == ["https://a.example/"]


@given(st.binary(max_size=400))
def test_nothing_breaks_the_reader(content):
    entries(part(b"BEGIN:VCALENDAR\nSUMMARY:" + content), part(content))
