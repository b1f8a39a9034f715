"""An engine is asked about few heavy messages at once, and about light ones without waiting for them."""

import asyncio
import io
import zipfile
from base64 import encodebytes
from typing import Any, ClassVar, cast

import pytest
from PIL import Image

from mailwarden.analysis.analyzer import EngineAnswer
from mailwarden.engines.engine import EngineInfo, EngineSettings, ScanEngine
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Status
from mailwarden.model.scan import RawMessage
from mailwarden.pipeline.collector import Collected, Collector
from tests.samples.in_process_workers import InProcessWorkers
from tests.samples.scans import collect_one
from tests.waiting import eventually

ENVELOPE = Envelope("ada@north.example", ("bob@south.example",))
HEAD = b"From: Ada <ada@north.example>\r\nTo: bob@south.example\r\nSubject: Minutes\r\nMIME-Version: 1.0\r\n"
LIGHT = HEAD + b"Content-Type: text/plain\r\n\r\nSee you on Monday.\r\n"


def with_file(content: bytes, media_type: bytes) -> bytes:
    head = b"Content-Type: " + media_type + b"\r\nContent-Transfer-Encoding: base64\r\n\r\n"
    return HEAD + head + encodebytes(content).replace(b"\n", b"\r\n")


def picture() -> bytes:
    out = io.BytesIO()
    Image.new("1", (4_000, 4_000)).save(out, "PNG")
    return out.getvalue()


def zipped(content: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("picture.png", content)
    return out.getvalue()


HEAVY = {
    "picture": with_file(picture(), b"image/png"),
    "a picture in an archive": with_file(zipped(picture()), b"application/zip"),
    "size": with_file(bytes(1_100_000), b"application/octet-stream"),
}


class SlowEngine(ScanEngine[EngineSettings]):
    """Answers when it is allowed to, and counts how many ask at once."""

    timeout = 60.0
    accepts_malformed: ClassVar[bool] = True
    unpacks: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__("clamav", EngineSettings())
        self.allowed = asyncio.Event()
        self.asking = self.most = self.answered = 0

    async def check(self) -> EngineInfo:
        return EngineInfo("there")

    async def ask(self, raw: RawMessage, envelope: Envelope, classifier: str = "") -> EngineAnswer:
        if raw.size == len(LIGHT):
            return EngineAnswer(())
        self.asking += 1
        self.most = max(self.most, self.asking)
        await self.allowed.wait()
        self.asking -= 1
        self.answered += 1
        return EngineAnswer(())


async def scan(collector: Collector, message: bytes, deadline: float = 30.0) -> Collected:
    return await collect_one(collector, message, ENVELOPE, deadline)


@pytest.mark.slow
@pytest.mark.contract("8 fairness")
@pytest.mark.parametrize("kind", HEAVY)
async def test_an_engine_is_asked_about_one_heavy_message_at_a_time(kind: str) -> None:
    engine = SlowEngine()
    collector = Collector(cast("Any", InProcessWorkers()), cast("Any", (engine,)))
    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(scan(collector, HEAVY[kind]))
        await eventually(lambda: engine.asking)
        light = await scan(collector, LIGHT)
        assert not engine.answered, "the light message did not wait for a heavy one"
        engine.allowed.set()
    assert [report.status for report in light.evidence.reports if report.analyzer == "clamav"] == [Status.FINISHED]
    assert (engine.most, engine.answered) == (1, 3)


async def test_a_heavy_message_that_gets_no_turn_in_time_is_not_finished() -> None:
    engine = SlowEngine()
    collector = Collector(cast("Any", InProcessWorkers()), cast("Any", (engine,)))
    first = asyncio.create_task(scan(collector, HEAVY["picture"]))
    await eventually(lambda: engine.asking)
    late = await scan(collector, HEAVY["picture"], deadline=0.5)
    engine.allowed.set()
    await first
    (report,) = (each for each in late.evidence.reports if each.analyzer == "clamav")
    assert report.status is Status.FAILED
    assert report.failure is not None
    assert "other heavy messages" in report.failure.sentence
