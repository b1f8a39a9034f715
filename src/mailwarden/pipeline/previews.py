"""Makes safe previews, each in a process of its own that is killed at its deadline.

A start takes a third of a second, which is acceptable for a preview. In return abby's process never parses a byte of a
hostile page.
"""

import asyncio
import sys
from contextlib import suppress
from typing import Protocol

import msgspec

from mailwarden.message.preview import Preview, document_of, notice
from mailwarden.pipeline.preview_worker import NO_SANDBOX
from mailwarden.pipeline.sandbox import REQUIRED, SandboxMode, SandboxUnavailable, environment
from mailwarden.telemetry.logs import get_logger

AT_ONCE = 2
PROGRAM = ("-m", "mailwarden.pipeline.preview_worker")
MAX_DOCUMENT = 32 * 1024 * 1024  # not inspection: a preview for people

log = get_logger(__name__)


class Bytes(Protocol):
    """A message, in memory or in a spool file."""

    def data(self) -> bytes: ...


class Previews:
    """Makes previews, a few at once; a message that cannot be shown has a document that says so."""

    def __init__(self, seconds: float = 10.0, sandbox: SandboxMode = REQUIRED) -> None:
        self._seconds = seconds
        self._sandbox = sandbox
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def of(self, message: Bytes) -> Preview:
        try:
            async with asyncio.timeout(self._seconds), self._turns:
                raw = await asyncio.to_thread(message.data)
                return msgspec.json.decode(await _run(raw, self._sandbox), type=Preview)
        except SandboxUnavailable as error:
            log.warning("preview_sandbox_unavailable", reason=str(error))
            return Preview(document_of(notice("Previews are off: the sandbox cannot be set up. abby's log says why.")))
        except (TimeoutError, OSError, msgspec.MsgspecError) as error:
            log.warning("preview_failed", reason=type(error).__name__)
            return Preview(document_of(notice("This message is built so that it cannot be shown within bounds.")))


async def _run(raw: bytes, sandbox: SandboxMode) -> bytes:
    """Send the message to a new process and return its output; the process is always ended."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        *PROGRAM,
        sandbox,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd="/",
        env=environment(),
    )
    try:
        out, _ = await process.communicate(raw)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode == NO_SANDBOX:
        raise SandboxUnavailable(out[:1_000].decode("utf-8", "replace"))  # shown: an error of ours
    if process.returncode or len(out) > MAX_DOCUMENT:
        raise OSError("The preview process ended without a preview.")
    return out
