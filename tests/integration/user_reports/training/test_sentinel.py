"""Training through Redis Sentinel: a training message counts when a replica has it, and survives a failover."""

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.engines.rspamd import RspamdEngine, RspamdSettings
from mailwarden.engines.rspamd_teacher import RspamdTeacher
from mailwarden.model.evidence import FailureKind
from mailwarden.serving.spool import Spooled
from tests.integration.user_reports.training.training_setup import BAD, ENVELOPE, message
from workshop.rig.engines import Engines
from workshop.rig.folders import remove_folder, temporary_folder
from workshop.rig.rspamd import PASSWORD, Rspamd
from workshop.rig.sentinel import SERVICE, SHIPPED, SentinelTrio, start_sentinels

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
]
FAILOVER_SECONDS = 90.0
MESSAGES = 10
SCAN_SECONDS = 10.0
LEARNING_SECONDS = 45.0


@pytest.fixture(scope="module")
def trio() -> Iterator[SentinelTrio]:
    with start_sentinels() as running:
        wait_for(running.is_replicated)
        yield running


@pytest.fixture(scope="module")
def rspamd(engines: Engines, trio: SentinelTrio) -> Iterator[Rspamd]:
    """Return an Rspamd that asks the Sentinels for its Redis, by the shipped configuration."""
    folder = temporary_folder()
    text = (SHIPPED / "rspamd-redis.conf").read_text("ascii")
    for number in range(3):
        text = text.replace(f"redis{number + 1}.example:6379", trio.redis[number].address)
        text = text.replace(f"redis{number + 1}.example:26379", trio.sentinels[number].address)
    server = Rspamd(
        folder / "rspamd",
        redis=trio.redis[0].address,
        dns=engines.dns.address,
        changes={"redis.conf": text},
        lua=(SHIPPED / "rspamd.local.lua").read_text("ascii"),
    )
    server.start()
    yield server
    server.stop()
    remove_folder(folder)


class RecordingTeacher(RspamdTeacher):
    """Remembers the status of each answer about a message: 208 is a text that Rspamd says it knows."""

    def __init__(self, rspamd: Rspamd, trio: SentinelTrio) -> None:
        addresses = [each.address for each in trio.sentinels]
        super().__init__(rspamd.controller_address, PASSWORD, "redis://ignored:1/0", addresses, SERVICE)
        self.answers: list[int] = []

    async def _ask(self, message: bytes, classifier: str, *, threat: bool) -> tuple[int, str]:
        status, reason = await super()._ask(message, classifier, threat=threat)
        if classifier == "tenant-1":
            self.answers.append(status)
        return status, reason


def wait_for(condition: Callable[[], bool], seconds: float = FAILOVER_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "too late"
        time.sleep(0.2)


async def teach(teacher: RspamdTeacher, classifier: str, number: int) -> None:
    """Teach a training message, again and again while it fails, as the training job does."""
    end = time.monotonic() + FAILOVER_SECONDS
    while True:
        try:
            assert await teacher.teach(message(BAD, number), classifier, threat=True)
        except EngineFailed as error:
            if time.monotonic() > end:
                raise TimeoutError("The training message was never learned.") from error
            await asyncio.sleep(0.5)
        else:
            return


async def test_trained_messages_survive_a_failover_and_scans_never_wait_for_it(
    trio: SentinelTrio, rspamd: Rspamd, note: Callable[[str], None]
) -> None:
    teacher = RecordingTeacher(rspamd, trio)
    engine = RspamdEngine("rspamd", RspamdSettings(address=rspamd.address))
    for number in range(MESSAGES):
        await teach(teacher, "tenant-1", number)
    master = trio.master()
    assert master is not None
    began = time.monotonic()
    await asyncio.to_thread(master.kill)
    scans = []
    for number in range(5):
        started = time.monotonic()
        await engine.ask(Spooled.of(message(BAD, 900 + number)), ENVELOPE, "tenant-1")
        scans.append(time.monotonic() - started)
    for number in range(MESSAGES, MESSAGES * 2):
        await teach(teacher, "tenant-1", number)
    learned = await teacher._count("tenant-1", threat=True)
    moved = trio.master()
    assert moved is not None
    assert moved is not master
    seconds = time.monotonic() - began
    note(
        f"Redis master killed: {learned} of {MESSAGES * 2} training messages there after it, "
        f"{seconds:.1f} s until all were learned; the slowest scan took {max(scans):.1f} s"
    )
    assert learned == MESSAGES * 2, f"the answers to training messages were {teacher.answers}"
    assert seconds < LEARNING_SECONDS, "Rspamd asks the Sentinels every 5 s, not once a minute"
    assert max(scans) < SCAN_SECONDS
    await teacher.close()


async def test_a_message_without_a_replica_is_not_learned(trio: SentinelTrio, rspamd: Rspamd) -> None:
    wait_for(lambda: trio.master() is not None)
    addresses = [each.address for each in trio.sentinels]
    teacher = RspamdTeacher(rspamd.controller_address, PASSWORD, "redis://ignored:1/0", addresses, SERVICE)
    master = trio.master()
    replicas = [each for each in trio.redis if each is not master and each.running]
    for replica in replicas:
        replica.pause()
    try:
        with pytest.raises(EngineFailed) as caught:
            await teacher.teach(message(BAD, 5_000), "tenant-2", threat=True)
        assert caught.value.kind is FailureKind.UNREACHABLE, "an outage, for which no message is to blame"
    finally:
        for replica in replicas:
            replica.resume()
    await teacher.close()


async def test_sentinels_that_are_down_fail_within_their_time(rspamd: Rspamd) -> None:
    teacher = RspamdTeacher(rspamd.controller_address, PASSWORD, "redis://ignored:1/0", ["127.0.0.1:1"], SERVICE)
    began = time.monotonic()
    with pytest.raises(EngineFailed):
        await teacher.check_redis()
    assert time.monotonic() - began < SCAN_SECONDS
    await teacher.close()
