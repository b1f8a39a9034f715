"""The checks of `mailwarden doctor` that send test files to the engines and name the setting that is wrong."""

import asyncio
import os
import re
import stat
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.analysis.analyzers.clamav import stream_of
from mailwarden.analysis.analyzers.rspamd import request_head, split_answer
from mailwarden.analysis.engine import EngineDoor
from mailwarden.cli import doctor_samples as samples
from mailwarden.cli.doctor_report import Host, Line
from mailwarden.guard.config import PATH, Clamav, Rspamd
from mailwarden.guard.engines import moment_of
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import FailureKind
from mailwarden.serving.spool import Spooled

T = TypeVar("T")

MAX_ANSWER = 4 * 1024 * 1024
OLD_SIGNATURES_DAYS = 7
_VERSION = re.compile(r"[^/]{1,60}/\d{1,12}/(.{1,60})")
_THREADS = re.compile(r"THREADS: [^\n]{0,60}? max (\d{1,6})")
_GREYLISTED = ("soft reject", "greylist")
# A public address: greylisting leaves local ones alone.
_ENVELOPE = Envelope("doctor@mailwarden.invalid", ("doctor@mailwarden.invalid",), "198.51.100.7", "mailwarden.invalid")
_PLAIN_HEAD = (
    b"POST /checkv2 HTTP/1.1\r\nHost: rspamd\r\nConnection: close\r\nContent-Length: %d\r\n"
    b"From: doctor@mailwarden.invalid\r\nRcpt: doctor@mailwarden.invalid\r\nIP: 198.51.100.7\r\n\r\n"
)


async def within(seconds: float, answer: Coroutine[object, object, T]) -> T:
    """Wait for an engine's answer as long as guard does; no answer is a failure of the engine."""
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        raise EngineFailed(FailureKind.TIMEOUT, f"no answer within {seconds:.0f} s") from None


def announce(step: str) -> None:
    """Tell on standard error which step takes its time now."""
    print(f"...   {step}", file=sys.stderr, flush=True)


async def check_clamav(host: Host) -> AsyncIterator[Line]:
    """Send test files to clamd, and name each setting with which it would pass something over."""
    if host.guard is None:
        return
    settings = host.guard.engines.clamav
    if refused := _closed_socket("clamav", settings.address, "set LocalSocketMode or LocalSocketGroup in clamd.conf"):
        yield refused
        return
    try:
        clamd = _Clamd(settings)
        if await clamd.ask(b"zPING\0") != "PONG":
            return  # check_engines reports it
        wrong = [line async for line in _wrong_in_clamd(clamd, settings)]
    except EngineFailed:
        return
    for line in wrong:
        yield line
    if not wrong:
        yield Line(True, "clamav settings", "finds EICAR in 50 MiB, reports encrypted, damaged and too deep files")


async def _wrong_in_clamd(clamd: "_Clamd", settings: Clamav) -> AsyncIterator[Line]:
    name = "clamav settings"
    found = await clamd.scan(samples.message_with("test.com", samples.EICAR))
    if not found:
        yield Line(False, "clamav signatures", "clamd does not find EICAR", "run `freshclam`, then restart clamd")
    if age := _age_of_signatures(await clamd.ask(b"zVERSION\0")):
        yield Line(False, "clamav signatures", f"{age} days old", "start clamav-freshclam, or run `freshclam`")
    announce("clamd reads a message of 50 MiB")
    try:
        large = await clamd.scan(samples.message_with("test.com", samples.EICAR, samples.MAX_MESSAGE))
    except EngineFailed:
        large = "size limit"
    if "size limit" in large:
        yield Line(False, name, "clamd refuses a message of 50 MiB", "set `StreamMaxLength 60M` in clamd.conf")
    elif "Limits.Exceeded" in large or (found and not large):
        seen = "clamd does not read a message of 50 MiB to its end" + (f" ({large})" if large else ", and reports OK")
        yield Line(False, name, seen, "set `MaxFileSize 60M` and `MaxScanSize 400M` in clamd.conf")
    alerts = (
        ("AlertExceedsMax", "archives.zip", samples.deep_archive(), "archives that are too deep for it"),
        ("AlertEncrypted", "secret.zip", samples.encrypted_archive(), "an encrypted archive"),
        ("AlertBrokenExecutables", "damaged.exe", samples.broken_program(), "a damaged program"),
    )
    for setting, file, content, what in alerts:
        if not await clamd.scan(samples.message_with(file, content)):
            yield Line(False, name, f"clamd reports OK for {what}", f"set `{setting} yes` in clamd.conf")
    threads = _THREADS.search(await clamd.ask(b"zSTATS\0"))
    if threads and int(threads[1]) < settings.max_concurrency:
        seen = f"clamd has {threads[1]} threads, and guard asks {settings.max_concurrency} times at once"
        fix = f"set `MaxThreads {settings.max_concurrency}` in clamd.conf, or engines.clamav.maxConcurrency in {PATH}"
        yield Line(False, name, seen, fix)


class _Clamd:
    def __init__(self, settings: Clamav) -> None:
        self._door = EngineDoor("clamav", settings.address, 1)
        self._seconds = settings.timeout / 1000

    async def ask(self, command: bytes) -> str:
        return (await within(self._seconds, self._door.probe(command))).rstrip(b"\0").decode("utf-8", "replace").strip()

    async def scan(self, content: bytes) -> str:
        """Return what clamd found, its error, or "" where it says OK."""
        answer = await within(self._seconds, self._door.ask(stream_of(Spooled.of(content)), MAX_ANSWER))
        text = answer.rstrip(b"\0").decode("utf-8", "replace").strip()
        return "" if text == "stream: OK" else text.removeprefix("stream: ")


def _age_of_signatures(version: str) -> int:
    """Return how many days old the signatures are where that is too old, else 0; without a date nothing is known."""
    match = _VERSION.fullmatch(version)
    made = moment_of(match[1]) if match else None
    days = (datetime.now(UTC) - made).days if made else 0
    return days if days > OLD_SIGNATURES_DAYS else 0


async def check_rspamd(host: Host) -> AsyncIterator[Line]:
    """Send test messages to Rspamd, and name each setting with which it would answer without what it found."""
    if host.guard is None:
        return
    settings = host.guard.engines.rspamd
    remedy = "set `mode=0660 group=...` behind the path in bind_socket of worker-normal.inc"
    if refused := _closed_socket("rspamd", settings.address, remedy):
        yield refused
        return
    try:
        rspamd = _Rspamd(settings)
        first = await rspamd.scan(samples.text_message(samples.GTUBE))
        wrong = [line async for line in _wrong_in_rspamd(rspamd, first)]
    except EngineFailed:
        return  # check_engines reports it
    for line in wrong:
        yield line
    if not wrong:
        yield Line(True, "rspamd settings", "knows GTUBE, reads 50 MiB, checks DKIM, does not greylist")


async def _wrong_in_rspamd(rspamd: "_Rspamd", gtube: Mapping[str, object]) -> AsyncIterator[Line]:
    name = "rspamd settings"
    if gtube.get("action") != "reject":
        seen = f"Rspamd answers `{gtube.get('action') or gtube.get('error')}` for GTUBE instead of `reject`"
        yield Line(False, name, seen, "leave gtube_patterns and the actions of Rspamd as they are shipped")
    # Without guard's own settings the score of this message lies where greylisting acts.
    suspect = await rspamd.scan(samples.text_message(b"Hello."), _PLAIN_HEAD)
    if suspect.get("action") in _GREYLISTED:
        seen = f"Rspamd greylists: it answers `{suspect['action']}`, without what it found"
        yield Line(False, name, seen, "copy deploy/rspamd/greylist.conf to /etc/rspamd/local.d and restart Rspamd")
    announce("Rspamd reads a message of 50 MiB")
    try:
        large = await rspamd.scan(samples.message_with("padding.txt", b"Test.", samples.MAX_MESSAGE))
        refused = "" if large.get("action") and not large.get("is_skipped") else str(large.get("error") or "skipped")
    except EngineFailed as error:
        refused = error.sentence
    if refused:
        seen = f"Rspamd does not read a message of 50 MiB ({refused.rstrip('.')})"
        yield Line(False, name, seen, "set `max_message = 62914560;` in /etc/rspamd/local.d/options.inc")
    if suspect.get("action") in _GREYLISTED:
        return  # a greylisted message is not checked further
    signed = await rspamd.scan(samples.signed_message())
    symbols = signed.get("symbols")
    dkim = [each for each in symbols if each.startswith("R_DKIM_")] if isinstance(symbols, dict) else []
    if not dkim or dkim == ["R_DKIM_NA"]:
        yield Line(False, name, "Rspamd does not check DKIM signatures", "enable its modules dkim, spf and dmarc")
    elif dkim == ["R_DKIM_TEMPFAIL"]:
        seen = "Rspamd's name server does not answer (R_DKIM_TEMPFAIL for a domain that cannot exist)"
        yield Line(False, name, seen, "set `dns { nameserver = [...]; }` in /etc/rspamd/local.d/options.inc")


class _Rspamd:
    def __init__(self, settings: Rspamd) -> None:
        self._door = EngineDoor("rspamd", settings.address, 1)
        self._seconds = settings.timeout / 1000

    async def scan(self, content: bytes, plain: bytes = b"") -> Mapping[str, object]:
        """Return Rspamd's answer to a message, asked as guard asks or with another head."""
        head = plain % len(content) if plain else request_head(_ENVELOPE, len(content))
        answer = await within(self._seconds, self._door.ask((head, content), MAX_ANSWER))
        _, body = split_answer(answer)
        try:
            return msgspec.json.decode(body, type=dict[str, object])
        except msgspec.DecodeError:
            return {"error": body[:100].decode("utf-8", "replace")}


def _closed_socket(name: str, address: str, remedy: str) -> Line | None:
    """Return what is wrong where this user may not write to an engine's socket (unix(7))."""
    kind, _, path = address.partition(":")
    if kind != "unix" or not Path(path).exists() or os.access(path, os.R_OK | os.W_OK):
        return None
    found = Path(path).stat()
    owner = f"owner {found.st_uid}, group {found.st_gid}, mode {stat.S_IMODE(found.st_mode):04o}"
    seen = f"{path}: permission denied ({owner}, running as {os.getuid()})"
    return Line(False, f"{name} socket", seen, f"add this user to the socket's group, or {remedy}")
