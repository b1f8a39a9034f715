"""Every analyzer against its sample messages: a `.yml` says what must be found and what must not.

`expect` and `refuse` name findings. A concluding analyzer is given the `envelope` and the `symbols` beside the
message; an engine analyzer has no message here but the engine's `answer`, as it came over the wire.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from msgspec import Struct

from mailwarden.analysis.analyzer import EngineAnswer, Known
from mailwarden.analysis.engines import clamav, rspamd
from mailwarden.analysis.engines.engine import ScanEngine
from mailwarden.analysis.engines.table import ENGINES
from mailwarden.analysis.observables import summarize
from mailwarden.analysis.pipeline.registry import CONCLUDING, LOCAL, YARA
from mailwarden.analysis.pipeline.worker_steps import Job, examine
from mailwarden.message.parser import parse_message
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Finding
from mailwarden.policy.rules import load_policy
from mailwarden.settings.reader import read

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "deploy" / "yara"  # an operator's rules, of which the product has none itself
SAMPLES = sorted(HERE.glob("*/*.yml"))
# The function that turns an engine's answer, as it came over the wire, into findings.
ANSWERS: dict[str, Callable[[bytes], Iterable[Finding]]] = {
    "clamav": clamav.read_answer,
    "rspamd": lambda answer: rspamd.findings_of(rspamd.read_answer(answer), rspamd.load_symbols()),
}
SCANNING = [engine.type_name for engine in ENGINES if issubclass(engine, ScanEngine)]
NAMES = [*(local.name for local in LOCAL), *(concluding.name for concluding in CONCLUDING), *SCANNING]
RULED = {name for rule in load_policy().rules for name in rule.needs}


class SampleEnvelope(Struct, frozen=True, rename="camel"):
    sender: str = "ada@north.example"
    helo: str | None = None
    remote_address: str | None = None


class Sample(Struct, frozen=True):
    expect: tuple[str, ...]
    refuse: tuple[str, ...]
    envelope: SampleEnvelope = SampleEnvelope()
    symbols: dict[str, tuple[str, ...]] = {}
    answer: str = ""


def find(analyzer: str, sample: Sample, path: Path) -> Iterable[Finding]:
    if analyzer in SCANNING:
        assert analyzer in ANSWERS, f"add the function that reads an answer of {analyzer} to ANSWERS in this file"
        return ANSWERS[analyzer](sample.answer.encode())
    raw = path.with_suffix(".eml").read_bytes()
    given = sample.envelope
    envelope = Envelope(given.sender, ("bob@south.example",), given.remote_address, given.helo)
    for concluding in CONCLUDING:
        if concluding.name == analyzer:
            answer = EngineAnswer(
                (),
                authentication=rspamd.sender_checks(sample.symbols, envelope),
                statistics=rspamd.statistics_of(sample.symbols),
            )
            return concluding.conclude(Known(envelope, summarize(parse_message(raw)), {"rspamd": answer}))
    reports = [frame.report for frame in examine(Job(raw, envelope=envelope))]
    assert not [report.failure for report in reports if report.failure]
    return [finding for report in reports for finding in report.findings if finding.name.startswith(f"{analyzer}.")]


@pytest.fixture(scope="module", autouse=True)
def own_rules():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(YARA, "_scanner", None)
        assert YARA.load(EXAMPLE) == ()
        yield


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_sample_has_the_expected_and_no_refused_findings(path):
    sample = read(path, Sample)
    found = {finding.name for finding in find(path.parent.name, sample, path)}
    assert set(sample.expect) - found == set()
    assert found & set(sample.refuse) == set()
    assert found <= RULED, "a finding has no rule: add one to policy/rules"


@pytest.mark.parametrize("analyzer", NAMES)
def test_every_analyzer_has_samples_that_find_and_one_that_refuses(analyzer):
    samples = [read(path, Sample) for path in SAMPLES if path.parent.name == analyzer]
    assert any(sample.expect for sample in samples), f"add a sample with `expect` to tests/analyzers/{analyzer}"
    assert any(sample.refuse for sample in samples), f"add a sample with `refuse` to tests/analyzers/{analyzer}"


def test_every_message_has_its_expectation():
    assert [path for path in HERE.glob("*/*.eml") if not path.with_suffix(".yml").exists()] == []
