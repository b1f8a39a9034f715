"""The table of guard's background jobs: each runs where the configuration has what it needs, under its own name."""

from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from mailwarden.guard.background import JOBS, JobParts
from mailwarden.guard.config import GuardConfig, ScanSources
from mailwarden.quarantine.settings import DigestSettings
from mailwarden.smtp.settings import Smtp
from mailwarden.user_reports.settings import ReportImap, ReportMailboxes
from mailwarden.weekly_report.settings import WeeklyReportSettings

PLAIN = GuardConfig()
SMTP = replace(PLAIN, scan_sources=ScanSources(smtp=Smtp()))
EVERYWHERE = {"history retention", "history rollups", "event retention", "quarantine retention", "quarantine metrics"}
WITH_SMTP = EVERYWHERE | {"quarantine releases"}


def jobs_of(config):
    return {job.name for job in JOBS if job.needs(config)}


def test_without_smtp_old_rows_and_held_messages_expire():
    assert jobs_of(PLAIN) == EVERYWHERE


def test_with_smtp_held_messages_are_released():
    assert jobs_of(SMTP) == WITH_SMTP


def test_without_smtp_the_folder_of_held_messages_is_swept_where_there_is_one(tmp_path):
    context: Any = SimpleNamespace(config=PLAIN, folder=tmp_path)
    parts = JobParts(context, None)
    assert parts.vault is None
    for folder in ("quarantine", "secrets"):
        (tmp_path / folder).mkdir()
    (tmp_path / "secrets" / "contents").write_text("ab" * 32)
    assert parts.vault is not None


def test_a_setting_adds_its_jobs():
    digest = DigestSettings("quarantine@company.example", "https://mail.company.example")
    weekly = WeeklyReportSettings("reports@company.example", "https://mail.company.example", 6)
    reports = ReportMailboxes("reports@company.example")
    mailbox = ReportImap("phish@company.example", "imap.company.example", "phish", "secrets/phish")
    assert jobs_of(replace(SMTP, quarantine=replace(SMTP.quarantine, digest=digest))) == WITH_SMTP | {
        "quarantine digests"
    }
    assert jobs_of(replace(SMTP, weekly_report=weekly)) == WITH_SMTP | {"weekly reports"}
    assert jobs_of(replace(SMTP, reports=reports)) == WITH_SMTP | {"case answers"}
    assert jobs_of(replace(SMTP, reports=replace(reports, mailboxes=(mailbox,)))) == WITH_SMTP | {
        "case answers",
        "report mailboxes",
    }


def test_every_job_has_a_name_of_its_own_and_an_interval():
    assert len({job.name for job in JOBS}) == len(JOBS)
    assert all(job.interval > 0 for job in JOBS)
