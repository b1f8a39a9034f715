"""Workers that examine a message in the process of the test: the same code, no sandbox and no deadline."""

import asyncio
from collections.abc import Callable
from typing import Any

from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import FailureKind
from mailwarden.model.scan import RawMessage
from mailwarden.pipeline.worker_pool import WorkerFailed
from mailwarden.pipeline.worker_steps import Frame, Job, run_steps


class InProcessWorkers:
    """Examines without a worker process; fails at report number `stop_at` of the second group of recipients."""

    heavy_count = 1

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.calls = 0

    def require_room(self, raw: RawMessage) -> None:
        pass

    async def run(
        self, raw: RawMessage, take: Callable[[Frame], None], wanted: Any, envelope: Envelope, *, flow: Any, others: Any
    ) -> None:
        self.calls += 1
        again = 0
        for frame in run_steps(Job(b"".join(raw.chunks()), wanted, envelope, others=others)):
            again += frame.group > 0
            if self.stop_at is not None and again > self.stop_at:
                raise WorkerFailed(FailureKind.TIMEOUT, "Too slow.")
            take(frame)
            await asyncio.sleep(0)
