"""Memory of a server process.

Python's cycle collector never scans objects of the start again and pauses rarely. Free memory goes back to the system
after a large message: the C library would keep it, because small pieces above it are in use.
"""

import atexit
import ctypes
import gc

_YOUNG = 50_000
_MIDDLE = 20
_OLD = 100

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of the GNU C library


def tune_gc() -> None:
    """Call once when everything is built; the collector then runs in few requests."""
    gc.collect()
    gc.freeze()
    # At exit the objects are collected: native libraries report leaks, and not in JSON.
    atexit.register(gc.unfreeze)
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)


def return_free_memory() -> None:
    """Give unused memory back to the system."""
    if _trim is not None:
        _trim(0)
