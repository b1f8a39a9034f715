"""`mailwarden doctor` against real engines with one wrong setting each: the setting is named."""

import datetime
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from mailwarden.cli.doctor.report import Host, Line
from mailwarden.cli.doctor.scans import check_postfix
from mailwarden.cli.doctor.servers import check_database
from mailwarden.engines.clamav import ClamavEngine, ClamavSettings, age_of_signatures
from mailwarden.engines.engine import AnyEngine, Diagnosis
from mailwarden.engines.rspamd import RspamdEngine, RspamdSettings
from mailwarden.guard.config import GuardConfig, ScanSources
from mailwarden.settings.shared import Database
from mailwarden.smtp.settings import Smtp
from workshop.rig.clamd import SETTINGS, Clamd
from workshop.rig.engines import Engines
from workshop.rig.folders import temporary_folder
from workshop.rig.rspamd import Rspamd as RigRspamd


def clamav_at(address: str) -> ClamavEngine:
    return ClamavEngine("clamav", ClamavSettings(address))


def rspamd_at(address: str) -> RspamdEngine:
    return RspamdEngine("rspamd", RspamdSettings(address))


async def diagnoses(engine: AnyEngine) -> list[Diagnosis]:
    return [line async for line in engine.diagnose(lambda _: None)]


async def lines(check: Callable[[Host], AsyncIterator[Line]], host: Host) -> list[Line]:
    return [line async for line in check(host)]


CLAMD = {
    "StreamMaxLength": "StreamMaxLength 60M -> StreamMaxLength 25M",
    "MaxFileSize": "MaxFileSize 60M -> MaxFileSize 25M",
    "MaxScanSize": "MaxScanSize 400M -> MaxScanSize 20M",
    "AlertExceedsMax": "AlertExceedsMax yes -> AlertExceedsMax no",
    "AlertEncrypted": "AlertEncrypted yes -> AlertEncrypted no",
    "AlertBrokenExecutables": "AlertBrokenExecutables yes -> AlertBrokenExecutables no",
    "MaxThreads": "MaxThreads 20 -> MaxThreads 8",
}
# One line names both of these.
TOGETHER = {"MaxFileSize", "MaxScanSize"}


@pytest.mark.slow
@pytest.mark.parametrize("settings", [["MaxFileSize"], ["MaxScanSize"], sorted(CLAMD.keys() - TOGETHER)], ids=" ".join)
async def test_each_wrong_setting_of_clamd_is_named(settings: list[str]):
    text = SETTINGS
    for right, _, wrong in (CLAMD[setting].partition(" -> ") for setting in settings):
        assert right in text
        text = text.replace(right, wrong)
    clamd = Clamd(temporary_folder() / "clamd", text)
    clamd.start()
    try:
        found = await diagnoses(clamav_at(clamd.address))
    finally:
        clamd.stop()
    assert [line.well for line in found] == [False] * len(settings), found
    for setting in settings:
        assert sum(setting in line.remedy for line in found) == 1, setting


async def test_missing_signatures_of_clamd_are_named():
    clamd = Clamd(temporary_folder() / "clamd", signatures="Other:0:0:6d61696c77617264656e2d6f74686572\n")
    clamd.start()
    try:
        found = await diagnoses(clamav_at(clamd.address))
    finally:
        clamd.stop()
    assert found[0] == Diagnosis(
        False, "clamav signatures", "clamd does not find EICAR", "run `freshclam`, then restart clamd"
    )


@pytest.mark.parametrize(("days", "reported"), [(0, 0), (7, 0), (30, 30)])
def test_old_signatures_are_named(days: int, reported: int):
    made = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=days, hours=1)
    assert age_of_signatures(f"ClamAV 1.4.6/27852/{made:%a %b %d %H:%M:%S %Y}") == reported
    assert age_of_signatures("ClamAV 1.4.6") == 0


async def test_right_engines_are_reported_as_right(engines: Engines):
    assert [line.well for line in await diagnoses(clamav_at(engines.clamd.address))] == [True]
    assert [line.well for line in await diagnoses(rspamd_at(engines.rspamd.address))] == [True]


RSPAMD = {
    "greylist.conf max_message": {
        "greylist.conf": "",
        "options.inc": 'dns {{ nameserver = ["{dns}"]; }}\nmax_message = 10485760;\n',
    },
    "nameserver": {"options.inc": 'dns {{ nameserver = ["127.0.0.1:9"]; timeout = 0.2s; }}\nmax_message = 62914560;\n'},
    "dkim": {"dkim.conf": "enabled = false;\n"},
}


@pytest.mark.slow
@pytest.mark.parametrize("named", RSPAMD)
async def test_each_wrong_setting_of_rspamd_is_named(named: str, engines: Engines):
    changes = {name: text.format(dns=engines.dns.address) for name, text in RSPAMD[named].items()}
    rspamd = RigRspamd(
        temporary_folder() / "rspamd", redis=engines.redis.address, dns=engines.dns.address, workers=1, changes=changes
    )
    rspamd.start()
    try:
        found = await diagnoses(rspamd_at(rspamd.address))
    finally:
        rspamd.stop()
    names = named.split()
    assert [line.well for line in found] == [False] * len(names), found
    assert all(name in line.remedy for name, line in zip(names, found, strict=True)), found


async def test_a_socket_without_permission_is_named(engines: Engines, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("mailwarden.engines.engine.os.access", lambda *_: False)  # root may open every socket
    (clamav,) = await diagnoses(clamav_at(engines.clamd.address))
    (rspamd,) = await diagnoses(rspamd_at(engines.rspamd.address))
    assert "LocalSocketMode" in clamav.remedy
    assert "bind_socket" in rspamd.remedy
    assert "permission denied" in clamav.seen


async def test_a_clock_that_is_two_hours_off_is_named(database_url: str, monkeypatch: pytest.MonkeyPatch):
    host = Host(Path("/nowhere"), GuardConfig(database=Database(url=database_url)), None)
    assert {line.name: line.well for line in await lines(check_database, host)} == {"database": True, "clock": True}
    now = time.time
    monkeypatch.setattr("mailwarden.cli.doctor.servers.time.time", lambda: now() + 7_200)
    clock = (await lines(check_database, host))[1]
    assert (clock.name, clock.well) == ("clock", False)
    assert "ahead of" in clock.seen
    assert "delete no history, events or held messages" in clock.seen


@pytest.mark.parametrize(
    ("limits", "well", "named"),
    [
        ("message_size_limit = 53477376\nvirtual_mailbox_limit = 0\nmailbox_size_limit = 0\n", True, ""),
        ("message_size_limit = 53477376\nvirtual_mailbox_limit = 51200000\n", False, "virtual_mailbox_limit"),
        ("message_size_limit = 53477376\nmailbox_size_limit = 51200000\n", False, "mailbox_size_limit"),
        ("message_size_limit = 10240000\nmailbox_size_limit = 51200000\n", False, "message_size_limit is below"),
    ],
)
async def test_limits_of_postfix_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: str, well: bool, named: str
):
    program = tmp_path / "postconf"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{limits}END\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    host = Host(tmp_path, GuardConfig(scan_sources=ScanSources(smtp=Smtp())), None)
    (line,) = await lines(check_postfix, host)
    assert line.well is well
    assert named in line.seen
