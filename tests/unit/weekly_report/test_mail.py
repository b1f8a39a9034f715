"""The email: text and HTML; nothing hostile reaches a header field or becomes a link."""

import re
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage

import pytest

from mailwarden.smtp.own_mail import UnwritableAddress
from mailwarden.weekly_report.mail import write_mail
from mailwarden.weekly_report.model import WeeklyReport
from tests.unit.weekly_report.sample_reports import HOSTILE, TENANT, sample_report

NOW = datetime(2026, 11, 16, 6, tzinfo=UTC)
PAGE = f"https://mail.example/console/reports?tenant={TENANT}&week=2026-W46"


def mail(report: WeeklyReport | None = None, recipient: str = "ada@acme.example") -> bytes:
    return write_mail(
        report or sample_report(),
        sender="reports@company.example",
        recipient=recipient,
        link="https://mail.example/",
        now=NOW,
    )


def parts_of(content: bytes) -> tuple[EmailMessage, str, str]:
    message = message_from_bytes(content, policy=policy.default)
    plain, html = message.get_body(("plain",)), message.get_body(("html",))
    assert plain is not None
    assert html is not None
    return message, plain.get_content(), html.get_content()


def test_the_mail_has_text_and_html_and_no_file() -> None:
    message, text, html = parts_of(mail())
    assert message.get_content_type() == "multipart/alternative"
    assert [part.get_content_type() for part in message.iter_parts()] == ["text/plain", "text/html"]
    assert message["Subject"] == "Weekly report, 2026-W46"
    assert message["Auto-Submitted"] == "auto-generated"
    for body in (text, html):
        assert "700 messages were scanned" in body
        assert "ann@acme[.]example" in body
    assert PAGE in text
    assert f'href="{PAGE.replace("&", "&amp;")}"' in html


def test_hostile_text_is_escaped_and_the_only_link_is_ours() -> None:
    content = mail(sample_report(tenant_name=HOSTILE))
    message, text, html = parts_of(content)
    assert sorted(message.keys()) == sorted(parts_of(mail())[0].keys())
    assert message["Bcc"] is None
    assert "<script>" not in html
    assert re.findall(r'href="([^"]+)"', html) == [PAGE.replace("&", "&amp;")]
    assert re.findall(r"https?://\S+", text) == [PAGE]
    assert content.isascii()
    assert max(map(len, content.split(b"\r\n"))) < 200


@pytest.mark.parametrize("address", ["a@b.example>\r\nBcc: x@y.example", "a@b.example, c@d.example", "a b@c.example"])
def test_an_address_that_could_end_its_field_is_rejected(address: str) -> None:
    with pytest.raises(UnwritableAddress):
        mail(recipient=address)
