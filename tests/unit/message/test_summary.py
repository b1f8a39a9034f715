"""The summary keeps who, what and where to, and nothing of the body."""

from mailwarden.message.parser import parse_message
from mailwarden.message.summary import summarize

RAW = (
    b'From: "Doe, Ann" <ann@Sender.example>\r\nReply-To: other@reply.example\r\n'
    b"To: b@recipient.example, c@recipient.example\r\nSubject: hello\r\nMessage-ID: <1@sender.example>\r\n"
    b"Date: Mon, 1 Jan 2026 00:00:00 +0000\r\nMIME-Version: 1.0\r\n"
    b"Content-Type: text/html\r\n\r\n"
    b'<a href="https://User@Shop.example:8443/x">x</a> http://b\xc3\xbccher.example/ <img src=http://cdn.example/i.png>\r\n'
)


def test_a_summary_names_people_and_parts():
    summary = summarize(parse_message(RAW))
    assert (summary.from_name, summary.from_address) == ("Doe, Ann", "ann@sender.example")
    assert summary.reply_to == "other@reply.example"
    assert summary.to == ("b@recipient.example", "c@recipient.example")
    assert (summary.subject, summary.message_id) == ("hello", "<1@sender.example>")
    assert [(part.path, part.media_type) for part in summary.parts] == [("0", "text/html")]
    assert summary.size == len(RAW)


def test_a_summary_is_bounded():
    subject = b"Subject: " + b"x" * 5_000 + b"\r\n\r\n"
    summary = summarize(parse_message(subject))
    assert len(summary.subject) == 998


def test_an_empty_message_has_a_summary():
    assert summarize(parse_message(b"")).from_address == ""
