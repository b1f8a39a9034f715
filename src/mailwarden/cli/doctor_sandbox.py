"""The check of `mailwarden doctor` that enters the worker sandbox in a process of its own."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from mailwarden.analysis.sandbox import REQUIRED, SandboxMode, SandboxUnavailable, check_out_of_reach, try_sandbox
from mailwarden.cli.doctor_report import Host, Line


async def check_sandbox(host: Host) -> AsyncIterator[Line]:
    if host.guard is not None:
        mode = host.guard.workers.sandbox
        yield await _look("sandbox guard", "workers.sandbox", mode, host.folder)
    if host.abby is not None:
        mode = host.abby.console.preview_sandbox
        yield await _look("sandbox abby", "console.previewSandbox", mode, host.folder)


async def _look(name: str, setting: str, mode: SandboxMode, folder: Path) -> Line:
    """Look whether this user can sandbox the processes that read messages; disabled by the operator is a warning."""
    if mode != REQUIRED:
        seen = f"disabled by {setting}: an exploited parser reaches secrets, configuration and the network"
        return Line(True, name, seen, f"remove {setting} and restart", warning=True)
    try:
        check_out_of_reach(folder)
        return Line(True, name, await asyncio.to_thread(try_sandbox))
    except SandboxUnavailable as error:
        return Line(False, name, error.message, f"or set {setting}: disabled, which gives up this protection")
