"""Mails to a report mailbox: every format names the original, and hostile bytes raise nothing."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.user_reports.mailbox.report_mail import MAX_ORIGINALS, ReportFormat, read_report
from mailwarden.user_reports.reports import Kind
from tests.samples import report_mails as mails

WHOLE = {
    "attached": (mails.attached(), ReportFormat.ATTACHED, None),
    "microsoft": (mails.microsoft(), ReportFormat.MICROSOFT, Kind.PHISHING),
    "google": (mails.google(), ReportFormat.ATTACHED, None),
    "arf": (mails.arf(), ReportFormat.ARF, Kind.PHISHING),
}


@pytest.mark.parametrize("name", WHOLE)
def test_every_format_with_an_attachment_has_the_original(name):
    raw, form, kind = WHOLE[name]
    report = read_report(raw)
    original = report.originals[0]
    assert (report.format, report.kind, report.reporter) == (form, kind, mails.REPORTER)
    assert original.message_id == "<parcel-1@parcel.example>"
    assert (original.subject, original.sender) == ("Your parcel waits", "service@parcel.example")
    assert sha256(mails.ORIGINAL).hexdigest() in original.digests
    assert original.content is not None
    assert original.content.rstrip() == mails.ORIGINAL.rstrip()


@pytest.mark.parametrize("changed", [mails.ORIGINAL.removesuffix(b"\r\n"), mails.ORIGINAL.replace(b"\r\n", b"\n")])
def test_the_digest_survives_changed_line_ends(changed):
    assert sha256(mails.ORIGINAL).hexdigest() in read_report(mails.attached(changed)).originals[0].digests


@pytest.mark.parametrize(
    ("subject", "kind"),
    [("1|a|b|c|(d)", Kind.SPAM), ("2|x", Kind.GOOD), ("Not junk: x", Kind.GOOD), ("Junk: x", Kind.SPAM), ("4|x", None)],
)
def test_the_subject_of_microsoft_says_the_kind(subject, kind):
    raw = mails.mixed(subject, b"Content-Type: message/rfc822\r\n\r\n" + mails.ORIGINAL)
    assert read_report(raw).kind == kind


@pytest.mark.parametrize("feedback", ["abuse", "not-spam", "opt-out"])
def test_feedback_reports_are_automatic_and_say_the_kind(feedback):
    report = read_report(mails.arf(feedback=feedback))
    assert report.kind == {"abuse": Kind.SPAM, "not-spam": Kind.GOOD}.get(feedback)
    assert report.automatic


def test_feedback_with_the_header_alone_has_no_content():
    original = read_report(mails.arf(whole=False)).originals[0]
    assert (original.message_id, original.content, original.digests) == ("<parcel-1@parcel.example>", None, ())


@pytest.mark.parametrize(
    "labels",
    [("From", "Subject"), ("Von", "Betreff"), ("De", "Objet"), ("De", "Asunto"), ("Da", "Oggetto"), ("От", "Тема"),
     ("> From", "> Subject"), ("*From", "*Subject"), ("差出人", "件名")],
)  # fmt: skip
def test_a_quoted_header_block_is_read_in_several_languages(labels):
    report = read_report(mails.inline(labels))
    original = report.originals[0]
    assert report.format is ReportFormat.INLINE
    assert (original.sender, original.subject) == ("service@parcel.example", "Your parcel waits")
    assert original.message_id == "<parcel-1@parcel.example>"


def test_a_quoted_header_block_in_html_is_read():
    page = (
        "<div>see</div><div><b>Von:</b> Parcel &lt;service@parcel.example&gt;<br><b>Betreff:</b> Your parcel waits<br>"
        "</div><p>Please confirm</p>"
    )
    raw = mails.head("WG: Your parcel waits", content_type="text/html; charset=utf-8") + page.encode()
    original = read_report(raw).originals[0]
    assert (original.sender, original.subject) == ("service@parcel.example", "Your parcel waits")
    assert original.message_id == ""


def test_messages_inside_of_the_original_are_not_reported():
    inner = mails.ORIGINAL.replace(b"parcel-1@", b"inner@")
    outer = mails.mixed("A forward", b"Content-Type: message/rfc822\r\n\r\n" + inner, sender="x@other.example")
    raw = mails.mixed("look", b"Content-Type: message/rfc822\r\n\r\n" + outer.replace(b"edge", b"rand"))
    assert [each.subject for each in read_report(raw).originals] == ["A forward"]


def test_the_number_of_originals_is_bounded():
    part = b"Content-Type: message/rfc822\r\n\r\n" + mails.ORIGINAL
    assert len(read_report(mails.mixed("many", *[part] * 30)).originals) == MAX_ORIGINALS


@pytest.mark.parametrize(
    ("field", "automatic"),
    [("Auto-Submitted: auto-replied", True), ("Auto-Submitted: no", False), ("List-Id: <l.example>", True)],
)
def test_answers_of_programs_are_automatic(field, automatic):
    assert read_report(mails.head("x", field) + b"hello").automatic is automatic


def test_a_mail_without_a_reported_message_is_unreadable():
    report = read_report(mails.head("hello") + b"I got a strange call.\r\n")
    assert (report.format, report.originals) == (ReportFormat.UNREADABLE, ())


def test_two_senders_are_no_reporter():
    assert read_report(b"From: a@acme.example\r\nFrom: b@acme.example\r\n\r\nx").reporter == ""
    assert read_report(b"From: a@acme.example, b@acme.example\r\n\r\nx").reporter == ""


@given(st.binary(max_size=300), st.integers(0, 2_000), st.sampled_from(list(WHOLE)))
def test_broken_reports_raise_nothing(noise, place, name):
    raw = WHOLE[name][0]
    read_report(raw[:place] + noise + raw[place + len(noise) :])
    read_report(noise)
