"""Every analyzer against its sample messages: a `.yml` says what must be found and what must not.

`expect` and `refuse` name findings. A concluding analyzer is given the `envelope` and the `symbols` beside the
message; an engine analyzer has no message here but the engine's `answer`, as it came over the wire.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from mailwarden.analysis.analyzer import EngineAnswer, Known
from mailwarden.analysis.message_values import summarize
from mailwarden.engines import clamav, rspamd
from mailwarden.engines.engine import ScanEngine
from mailwarden.engines.table import ENGINES
from mailwarden.message.parser import parse_message
from mailwarden.model.evidence import Finding
from mailwarden.pipeline.registry import CONCLUDING, LOCAL
from mailwarden.policy.rules import load_policy
from tests.samples.examined import Sample, examined, read_sample
from tests.tables import every, named

HERE = Path(__file__).parent
SAMPLES = sorted(HERE.glob("*/*.yml"))
# The function that turns an engine's answer, as it came over the wire, into findings.
ANSWERS: dict[str, Callable[[bytes], Iterable[Finding]]] = {
    "clamav": clamav.read_answer,
    "rspamd": lambda answer: rspamd.findings_of(rspamd.read_answer(answer), rspamd.load_symbols()),
}
SCANNING = [engine.type_name for engine in ENGINES if issubclass(engine, ScanEngine)]
NAMES = [*(local.name for local in LOCAL), *(concluding.name for concluding in CONCLUDING), *SCANNING]
RULED = {name for rule in load_policy().rules for name in rule.needs}


def find(analyzer: str, sample: Sample, path: Path) -> Iterable[Finding]:
    if analyzer in SCANNING:
        assert analyzer in ANSWERS, f"add the function that reads an answer of {analyzer} to ANSWERS in this file"
        return ANSWERS[analyzer](sample.answer.encode())
    message = path.with_suffix(".eml")
    envelope = sample.envelope.envelope()
    for concluding in CONCLUDING:
        if concluding.name == analyzer:
            answer = EngineAnswer(
                (),
                authentication=rspamd.sender_checks(sample.symbols, envelope),
                statistics=rspamd.statistics_of(sample.symbols),
            )
            return concluding.conclude(
                Known(envelope, summarize(parse_message(message.read_bytes())), {"rspamd": answer})
            )
    return [
        finding
        for report in examined(message)
        for finding in report.findings
        if finding.name.startswith(f"{analyzer}.")
    ]


@pytest.mark.xdist_group("samples")
def test_every_sample_has_the_expected_and_no_refused_findings():
    def check(path: Path) -> None:
        sample = read_sample(path)
        found = {finding.name for finding in find(path.parent.name, sample, path)}
        assert set(sample.expect) - found == set()
        assert found & set(sample.refuse) == set()
        assert found <= RULED, "a finding has no rule: add one to policy/rules"

    every(SAMPLES, check, named)


@pytest.mark.xdist_group("samples")
def test_every_analyzer_has_samples_that_find_and_one_that_refuses():
    def check(analyzer: str) -> None:
        samples = [read_sample(path) for path in SAMPLES if path.parent.name == analyzer]
        assert any(sample.expect for sample in samples), f"add a sample with `expect` to tests/analyzers/{analyzer}"
        assert any(sample.refuse for sample in samples), f"add a sample with `refuse` to tests/analyzers/{analyzer}"

    every(NAMES, check)


def test_every_message_has_its_expectation():
    assert [path for path in HERE.glob("*/*.eml") if not path.with_suffix(".yml").exists()] == []
