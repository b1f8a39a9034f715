"""Python's cycle collector, set for a server: objects of the start are never scanned again, and pauses are rare."""

import atexit
import gc

_YOUNG = 50_000
_MIDDLE = 20
_OLD = 100


def tune_gc() -> None:
    """Call once when everything is built; the collector then runs in few requests."""
    gc.collect()
    gc.freeze()
    # At exit the objects are collected: native libraries report leaks, and not in JSON.
    atexit.register(gc.unfreeze)
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
