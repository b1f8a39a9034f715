"""Sample messages, examined once in a process for all tests that look at their findings."""

from functools import cache
from pathlib import Path

import pytest
from msgspec import Struct

from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Report
from mailwarden.pipeline.registry import YARA
from mailwarden.pipeline.worker_steps import Job, run_steps
from mailwarden.settings.reader import read

TESTS = Path(__file__).parents[1]
EXAMPLE = TESTS.parent / "deploy" / "yara"  # an operator's rules, of which the product has none itself
MESSAGES = sorted(TESTS.glob("analyzers/*/*.eml"))


class SampleEnvelope(Struct, frozen=True, rename="camel"):
    sender: str = "ada@north.example"
    helo: str | None = None
    remote_address: str | None = None

    def envelope(self) -> Envelope:
        return Envelope(self.sender, ("bob@south.example",), self.remote_address, self.helo)


class Sample(Struct, frozen=True):
    expect: tuple[str, ...]
    refuse: tuple[str, ...]
    envelope: SampleEnvelope = SampleEnvelope()
    symbols: dict[str, tuple[str, ...]] = {}
    answer: str = ""


@cache
def read_sample(path: Path) -> Sample:
    """Read what is said of a sample message, by the path of its `.yml`."""
    return read(path, Sample)


@cache
def examined(path: Path) -> tuple[Report, ...]:
    """Return the reports of the analyzers about a sample message, with the rules of `deploy/yara`."""
    envelope = read_sample(path.with_suffix(".yml")).envelope.envelope()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(YARA, "_scanner", _scanner())
        reports = tuple(frame.report for frame in run_steps(Job(path.read_bytes(), envelope=envelope)))
    assert not [report.failure for report in reports if report.failure]
    return reports


@cache
def _scanner() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(YARA, "_scanner", None)
        assert YARA.load(EXAMPLE) == ()
        return YARA._scanner
