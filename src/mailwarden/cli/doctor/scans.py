"""The checks of `mailwarden doctor` that scan test messages, and those of Postfix."""

import asyncio
import contextlib
import io
import shutil
import time
from collections.abc import AsyncIterator
from uuid import UUID

import aiohttp
import msgspec

from mailwarden.cli.doctor.report import Host, Line, announce
from mailwarden.engines import samples
from mailwarden.errors import MailwardenError
from mailwarden.hop import records as wire
from mailwarden.model.envelope import Envelope
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.scan import Scan
from mailwarden.model.tenant import AssignedBy, Assignment, RecipientGroup
from mailwarden.serving.spool import Spooled
from mailwarden.serving.tls import client_context
from mailwarden.wire.scanning import ErrorBody, MessageAnalysisResult

SECONDS = 120.0
NOBODY = UUID(int=0)  # a tenant without lists of its own
BEYOND = 1_048_576  # for guard's own header fields in a message

_ADDRESS = "doctor@mailwarden.invalid"
_CLEAN = (Verdict.CLEAN, Verdict.BULK)


async def check_scans(host: Host) -> AsyncIterator[Line]:
    """Scan test messages through each guard in abby's configuration; history stores none of them."""
    if host.abby is None:
        return
    tls = host.abby.tls
    try:
        context = client_context(host.folder / tls.ca, host.folder / tls.certificate, host.folder / tls.key)
    except MailwardenError:
        return  # check_certificates reports it
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), timeout=timeout) as session:
        for guard in host.abby.service_providers.core.hosts:
            with contextlib.suppress(aiohttp.ClientConnectorError):  # check_processes reports it
                yield await _scan_all(session, guard)


async def _scan_all(session: aiohttp.ClientSession, guard: str) -> Line:
    name = f"scans {guard.rsplit('//', maxsplit=1)[-1]}"
    tests = (
        ("EICAR", samples.message_with("test.com", samples.EICAR), (Verdict.MALWARE,)),
        ("GTUBE", samples.text_message(samples.GTUBE), (Verdict.SPAM,)),
        ("an encrypted archive", samples.message_with("secret.zip", samples.encrypted_archive()), None),
        ("archives that are too deep", samples.message_with("deep.zip", samples.deep_archive()), None),
        ("a message of 50 MiB", _largest(), ()),
    )
    wrong = []
    for what, message, expected in tests:
        announce(f"{name}: {what}")
        try:
            result = await _submit(session, guard, message)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ClientError, OSError, MailwardenError, msgspec.DecodeError) as error:
            wrong.append(f"{what}: {error or 'no answer'}")
            continue
        if not _is_right(result, expected):
            wrong.append(f"{what}: {result.verdict}, {result.decision}")
    if wrong:
        return Line(False, name, "; ".join(wrong), "set what the lines about engines name, then read guard's log")
    return Line(True, name, ", ".join(what for what, _, _ in tests) + ": as expected")


def _is_right(result: MessageAnalysisResult, expected: tuple[Verdict, ...] | None) -> bool:
    """Compare a verdict with the expected ones; none: any decided verdict, and None: any verdict except clean."""
    if expected is None:
        return result.verdict not in _CLEAN
    if not expected:
        return result.decision != Decision.UNDECIDED
    return result.verdict in expected and result.decision == Decision.QUARANTINE


def _largest() -> bytes:
    """Return a message that fills an upload of the largest size, beside its other part and the boundaries."""
    return samples.message_with("padding.txt", b"Test.", samples.MAX_MESSAGE - 4_096)


async def _submit(session: aiohttp.ClientSession, guard: str, message: bytes) -> MessageAnalysisResult:
    group = RecipientGroup(Assignment(NOBODY, AssignedBy.DEFAULT), (_ADDRESS,))
    scan = Scan(
        wire.REST_API,
        Envelope(_ADDRESS, (_ADDRESS,)),
        (group,),
        Spooled.of(message),
        deadline=time.monotonic() + SECONDS,
        stored=False,
    )
    headers = {"Content-Type": wire.SCAN_MEDIA_TYPE}
    url = guard.rstrip("/") + wire.SUBMIT_PATH
    try:
        async with session.post(url, data=io.BytesIO(wire.write_head(scan) + message), headers=headers) as response:
            body = await response.read()
    except TimeoutError:
        raise MailwardenError(f"no answer within {SECONDS:.0f} s") from None
    if response.status != 200:
        error = msgspec.json.decode(body, type=ErrorBody)
        raise MailwardenError(f"{response.status} {error.error}")
    return msgspec.json.decode(body, type=MessageAnalysisResult)


async def check_postfix(host: Host) -> AsyncIterator[Line]:
    """Compare the size limits of this host's Postfix: it must be able to deliver all accepted messages."""
    if host.guard is None or host.guard.scan_sources.smtp is None or (program := shutil.which("postconf")) is None:
        return
    limits = await _postfix_limits(program)
    if "message_size_limit" not in limits:
        return
    accepted = limits["message_size_limit"]
    wrong = [
        f"{key} is {limits[key]}"
        for key in ("virtual_mailbox_limit", "mailbox_size_limit")
        if key in limits and 0 < limits[key] < accepted
    ]
    needed = host.guard.scan_sources.smtp.max_message_size + BEYOND
    if 0 < accepted < needed:
        wrong.append(f"message_size_limit is below {needed}, which guard may hand back")
    if wrong:
        seen = f"message_size_limit is {accepted}, and " + ", ".join(wrong)
        yield Line(
            False, "postfix", seen, "run `mailwarden engines install postfix-before-queue`, or mail stays in the queue"
        )
    else:
        yield Line(True, "postfix", f"message_size_limit {accepted}, mailboxes take as much")


async def _postfix_limits(program: str) -> dict[str, int]:
    keys = ("message_size_limit", "virtual_mailbox_limit", "mailbox_size_limit")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(program, *keys, stdout=pipe, stderr=asyncio.subprocess.DEVNULL)
    try:
        async with asyncio.timeout(10.0):
            printed, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        return {}
    found: dict[str, int] = {}
    for line in printed.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition("=")
        with contextlib.suppress(ValueError):
            found[key.strip()] = int(value)
    return found
