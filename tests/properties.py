"""How many examples a property is tried with: few in `make test`, its own number in the gate, many in long runs."""

import os
from collections.abc import Callable
from typing import Any

from hypothesis import settings

FEW, MANY = 10, 2_000
SHORT = os.environ.get("MAILWARDEN_EXAMPLES") == "few"
FULL = os.environ.get("MAILWARDEN_FULL") == "1"


def load_profile() -> None:
    """Set the examples of all properties; what passed here passes there, and long runs draw others."""
    # A machine that is busy takes its time over an example; what is slow by itself has a test that says so.
    settings.register_profile("few", deadline=None, derandomize=True, max_examples=FEW)
    settings.register_profile("every run", deadline=None, derandomize=True)
    settings.register_profile("full", deadline=None, max_examples=MANY)
    settings.load_profile("full" if FULL else "few" if SHORT else "every run")


def examples(count: int, **changes: Any) -> Callable[[Any], Any]:
    """Try a property with as many examples in the gate, with few in the loop, and with many in long runs."""
    return settings(max_examples=max(count, MANY) if FULL else min(count, FEW) if SHORT else count, **changes)
