"""The check of `mailwarden doctor` that asks this host's libraries for answers that are known."""

import time
from collections.abc import AsyncIterator

from mailwarden.analysis.self_tests import READERS, YARA_ENGINE
from mailwarden.cli.doctor_report import Host, Line
from mailwarden.crypto.self_tests import CRYPTOGRAPHY
from mailwarden.telemetry.self_tests import BASIC, PASSWORDS, wrong_answers

ALL = (*BASIC, *CRYPTOGRAPHY, *PASSWORDS, *READERS, *YARA_ENGINE)


async def check_self_tests(_: Host) -> AsyncIterator[Line]:
    """Run every self-test; a process with a failed one does not start."""
    began = time.perf_counter()
    failed = wrong_answers(ALL)
    for each in failed:
        yield Line(False, f"self-test {each.name}", each.why, each.remedy)
    if not failed:
        took = (time.perf_counter() - began) * 1000
        yield Line(True, "self-tests", f"{len(ALL)} known answers in {took:.0f} ms")
