"""Waits for conditions, for blocking and for asynchronous tests."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

TIMEOUT_SECONDS = 60.0  # a busy machine is slow; a condition that never holds fails after this


def wait_until(condition: Callable[..., object], seconds: float = TIMEOUT_SECONDS, pause: float = 0.05) -> bool:
    """Return whether the condition holds within this time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True


async def eventually(
    condition: Callable[..., object | Awaitable[object]], seconds: float = TIMEOUT_SECONDS, pause: float = 0.01
) -> None:
    """Return when the condition holds; raise TimeoutError if it does not within this time."""
    async with asyncio.timeout(seconds):
        while True:
            value = condition()
            if await value if inspect.isawaitable(value) else value:
                return
            await asyncio.sleep(pause)
