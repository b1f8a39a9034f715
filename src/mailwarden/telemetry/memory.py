"""Python's cycle collector, set for a server: what the start made is never looked at again, and pauses are rare."""

import atexit
import gc

_YOUNG = 50_000
_MIDDLE = 20
_OLD = 100


def tune_gc() -> None:
    """Call once when everything is built; most requests then cost the collector nothing."""
    gc.collect()
    gc.freeze()
    # At the end it is looked at after all: native libraries report what nobody frees, and not in JSON.
    atexit.register(gc.unfreeze)
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
