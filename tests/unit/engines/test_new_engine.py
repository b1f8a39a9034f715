"""A new engine is one class and one line: it is configured, watched and asked without a change elsewhere."""

import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from mailwarden.analysis.analyzer import EngineAnswer, EngineFailed
from mailwarden.engines import table
from mailwarden.engines.engine import Announce, Diagnosis, EngineInfo, EngineSettings, ScanEngine
from mailwarden.guard import config as guard_config
from mailwarden.guard.engine_watch import EngineWatch
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import FailureKind, Finding
from mailwarden.model.scan import RawMessage
from mailwarden.pipeline.collector import Collector
from mailwarden.settings.reader import Mistakes, read
from mailwarden.telemetry.metrics import Metrics
from tests.samples.in_process_workers import InProcessWorkers
from tests.samples.scans import collect_one

ENVELOPE = Envelope("ada@north.example", ("bob@south.example",))
MESSAGE = b"From: Ada <ada@north.example>\r\nTo: bob@south.example\r\nSubject: Minutes\r\n\r\nThe word is teapot.\r\n"
TYPES = sorted((*(engine.type_name for engine in table.ENGINES), "words"))


class WordSettings(EngineSettings, frozen=True, tag="words"):
    """The engine of this test."""

    word: str = "teapot"


class WordEngine(ScanEngine[WordSettings]):
    type_name: ClassVar[str] = "words"
    title: ClassVar[str] = "Words"
    settings_type: ClassVar[type[EngineSettings]] = WordSettings
    required: ClassVar[bool] = False
    convicts_files: ClassVar[bool] = True
    timeout = 5.0

    async def check(self) -> EngineInfo:
        return EngineInfo("words 1.0", "1.0")

    async def ask(self, raw: RawMessage, envelope: Envelope, classifier: str = "") -> EngineAnswer:
        if self._settings.word == "broken":
            raise EngineFailed(FailureKind.UNREACHABLE, "No dictionary.")
        found = self._settings.word.encode() in b"".join(raw.chunks())
        return EngineAnswer((Finding("words.found"),) if found else (), "words 1.0")

    async def diagnose(self, announce: Announce) -> AsyncIterator[Diagnosis]:
        yield Diagnosis(True, self.name, self._settings.word)


@pytest.fixture
def configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a reader of guard.yml for a product whose table has one more line."""
    monkeypatch.setattr(table, "ENGINES", (*table.ENGINES, WordEngine))
    source = Path(guard_config.__file__).read_text("utf-8")
    module: dict[str, Any] = {"__name__": guard_config.__name__, "__file__": guard_config.__file__}
    exec(compile(source, guard_config.__file__, "exec"), module)
    path = tmp_path / "guard.yml"

    def read_text(text: str) -> guard_config.GuardConfig:
        path.write_text(textwrap.dedent(text))
        return cast("guard_config.GuardConfig", read(path, module["GuardConfig"]))

    return read_text


async def reports_of(config: guard_config.GuardConfig) -> dict[str, Any]:
    added = [each for each in table.open_engines(config.engines) if isinstance(each, WordEngine)]
    collected = await collect_one(Collector(cast("Any", InProcessWorkers()), added), MESSAGE, ENVELOPE, 10.0)
    return {report.analyzer: report for report in collected.evidence.reports}


async def test_a_new_engine_is_configured_asked_and_watched(configuration: Any) -> None:
    config = configuration("engines:\n  words: {}\n  other: {type: words, word: coffee}\n")
    assert [*config.engines] == ["rspamd", "clamav", "dns", "words", "other"]
    reports = await reports_of(config)
    assert [finding.name for finding in reports["words"].findings] == ["words.found"]
    assert reports["words"].convicts_files
    assert not reports["words"].required
    assert reports["other"].findings == ()
    watch = EngineWatch(
        [each for each in table.open_engines(config.engines) if isinstance(each, WordEngine)], Metrics()
    )
    await watch.check()
    assert [(state.name, state.up, state.version) for state in watch.states] == [
        ("words", True, "1.0"),
        ("other", True, "1.0"),
    ]


async def test_a_new_engine_that_fails_is_reported(configuration: Any) -> None:
    reports = await reports_of(configuration("engines: {words: {word: broken}}\n"))
    assert reports["words"].failure.sentence == "No dictionary."


def test_an_optional_engine_runs_only_where_it_is_named(configuration: Any) -> None:
    assert "words" not in configuration("engines: {}\n").engines


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("engines: {word: {}}", "engines.word: unknown name without a `type`; did you mean `words`?"),
        ("engines: {x: {type: y}}", f"engines.x.type: must be {' or '.join(TYPES)}"),
        ("engines: {words: {colour: red}}", "engines.words.colour: unknown key"),
        ("engines: {rspamd: {}, x: {type: rspamd}}", "engines: only one engine that checks the sender is possible"),
        ("engines: {words: }", "engines.words: is empty"),
    ],
)
def test_mistakes_about_engines_are_reported(configuration: Any, text: str, mistake: str) -> None:
    with pytest.raises(Mistakes, match=r".") as raised:
        configuration(text)
    assert mistake in str(raised.value)
