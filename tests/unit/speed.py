"""The speed of this machine, so that a limit in seconds means the same work on a slow or busy machine."""

import time

USUAL_SECONDS = 0.05  # the work below on an idle core of the machine of docs/measurements.md
_BYTES = b"-" * (16 << 20)


def slowness() -> float:
    """Return how many times slower than usual this machine is now, at least 1 and at most 6."""
    started = time.process_time()
    _BYTES.find(b"\n--")
    odd = 0
    for number in range(300_000):
        odd += number & 1
    return min(max(1.0, (time.process_time() - started) / USUAL_SECONDS), 6.0)
