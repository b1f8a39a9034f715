"""The check of report mailboxes by `mailwarden doctor` without a mail server."""

from pathlib import Path

from mailwarden.cli.doctor.report import Host
from mailwarden.cli.doctor.report_mailboxes import check_report_mailboxes
from mailwarden.guard.config import GuardConfig
from mailwarden.user_reports.settings import ReportImap, ReportMailboxes


async def test_a_password_file_that_is_not_text_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(b"secret-\xff\n")
    mailbox = ReportImap("phishing@company.example", "127.0.0.1", "ann", "password")
    host = Host(
        tmp_path, guard=GuardConfig(reports=ReportMailboxes("reports@company.example", mailboxes=(mailbox,))), abby=None
    )
    [line] = [each async for each in check_report_mailboxes(host)]
    assert not line.well
    assert "is not UTF-8 text. Write the password in UTF-8" in str(line)
    assert "0xff" not in str(line)
