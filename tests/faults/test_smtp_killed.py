"""Whatever mail runs through is killed and filled up meanwhile: what was accepted is at the sink or in quarantine.

MAILWARDEN_FULL=1 sends 10,000 messages, half of them each way; MAILWARDEN_CORPUS names a corpus to take them from.
"""

import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.conftest import GUARD, Note
from tests.faults.delivery_check import CopySink, DeliveryCheck, DeliveryTotals, read_deferrals, read_quarantine
from tests.faults.injected_faults import Fault, FaultSchedule, FullDisk, Kill
from tests.faults.mail_load import MailLoad, plainly
from tests.faults.numbered_messages import DOMAIN, MessageSource, corpus_messages, own_messages
from tests.waiting import wait_until
from workshop.rig.disk import SmallDisk
from workshop.rig.engines import Engines
from workshop.rig.folders import remove_folder, temporary_folder
from workshop.rig.postfix import Postfix, Way
from workshop.rig.process import RigError
from workshop.rig.product import install_product

pytestmark = pytest.mark.slow

FULL = os.environ.get("MAILWARDEN_FULL") == "1"
CORPUS = os.environ.get("MAILWARDEN_CORPUS")
SEED = int(os.environ.get("MAILWARDEN_SEED", "6"))
MESSAGES = int(os.environ.get("MAILWARDEN_MESSAGES", "10000"))
HALF = MESSAGES // 2
LEAST, MOST = (HALF, HALF) if FULL else (40, 1_000)
SENDERS = 8 if FULL else 4
GAP = (1.0, 12.0) if FULL else (0.2, 0.6)  # seconds between two faults
PAUSE = 0.0 if FULL else 0.25  # seconds of a sender between two messages
MAX_WAITING = 300 if FULL else 30  # messages in Postfix's queue at which senders pause
PATIENCE = 600.0 if FULL else 90.0
PROGRESS = 500
DOMAINS = ("company.example", DOMAIN)
# Nothing is paused here, and large messages are judged on two busy cores.
ENGINES = {"rspamd": {"timeout": 15_000}, "clamav": {"timeout": 15_000}}


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@pytest.fixture(scope="module")
def messages(engines: Engines) -> MessageSource:
    return corpus_messages(Path(CORPUS))[0] if CORPUS else own_messages(engines.dns)


@pytest.fixture(scope="module")
def alone(messages: MessageSource) -> Mapping[int, bytes]:
    """Return what Postfix alone makes of each message: it drops fields like Bcc, and mends broken header blocks."""
    if not CORPUS:
        return {}
    folder = temporary_folder()
    try:
        with CopySink() as sink:
            postfix = Postfix(folder, "milter", DOMAINS, sink.port, retry=1)
            postfix.start()
            load = MailLoad(messages, postfix.port, SENDERS, MESSAGES, MESSAGES, PATIENCE)
            with load.running():
                pass
            assert wait_until(lambda: postfix.waiting() == 0, PATIENCE, 0.5)
            postfix.stop()
    finally:
        remove_folder(folder)
    say(f"Postfix alone: {len(load.accepted)} messages accepted, {len(sink.copies)} at the sink")
    return {number: copies[0].digest for number, copies in sink.copies.items()}


@pytest.fixture
def folder() -> Iterator[Path]:
    made = temporary_folder()
    yield made
    remove_folder(made)


def small_disks(folder: Path, note: Note, stack: ExitStack) -> dict[str, SmallDisk]:
    """Return the disks of guard, of Postfix and of the quarantine; none where they cannot be mounted."""
    # Postfix refuses all mail where less is free than one and a half times the largest message.
    sizes = {"guard's disk": ("guard", 64), "Postfix's disk": ("queue", 160), "quarantine": ("vault", 64)}
    disks = {name: SmallDisk(folder / place, size * (4 if FULL else 1)) for name, (place, size) in sizes.items()}
    try:
        for disk in disks.values():
            disk.mount()
            stack.callback(disk.unmount)
    except RigError as error:
        note(f"no full disk and no full quarantine in this run: {error}")
        return {}
    return disks


def inject_faults(schedule: FaultSchedule, load: MailLoad, sink: CopySink, postfix: Postfix, way: Way) -> None:
    """Let things happen while mail is on its way: once each, or in full until all of it has come through."""
    began, reported = time.monotonic(), 0
    waiting = 0

    def look() -> None:
        nonlocal waiting, reported
        waiting = postfix.waiting()
        (load.hold.set if waiting > MAX_WAITING else load.hold.clear)()
        accepted = len(load.accepted)
        if accepted // PROGRESS > reported:
            reported = accepted // PROGRESS
            say(
                f"{way}: {accepted} accepted, {len(load.refused)} refused, {len(sink.copies)} at the sink, "
                f"{waiting} waiting, {len(schedule.injected)} faults, {time.monotonic() - began:.0f} s"
            )

    while not (load.done and waiting == 0 if FULL else schedule.rounds):
        schedule.wait(*GAP, look)
        schedule.inject_next()


@pytest.mark.parametrize(("way", "mode"), [("before-queue", "beforeQueue"), ("after-queue", "afterQueue")])
def test_accepted_messages_are_delivered_or_quarantined_despite_faults(
    note: Note,
    restored_engines: Engines,
    database_url: str,
    tmp_path: Path,
    folder: Path,
    messages: MessageSource,
    alone: Mapping[int, bytes],
    way: Way,
    mode: str,
) -> None:
    began = time.monotonic()
    with ExitStack() as stack:
        disks = small_disks(folder, note, stack)
        sink = stack.enter_context(CopySink())
        postfix = Postfix(folder, way, DOMAINS, sink.port, retry=1)
        stack.callback(postfix.stop)
        smtp = {"mode": mode, "listen": {"port": postfix.guard_port}, "nextHop": f"127.0.0.1:{postfix.back_port}"}
        own = {
            "engines": ENGINES,
            "scanSources": {"smtp": smtp},
            "spool": str(folder / "guard" / "spool"),
            "lists": {"replica": str(folder / "guard" / "lists")},
            "quarantine": {"store": str(folder / "vault")},
        }
        (guard,) = install_product(tmp_path, restored_engines, database_url, guards=({**GUARD, **own},)).guards
        stack.callback(guard.stop)
        guard.start()
        postfix.start()
        first = HALF * (way == "after-queue")
        load = MailLoad(messages, postfix.port, SENDERS, LEAST, MOST, PATIENCE, first=first, pause=PAUSE)
        killed = [Kill(each) for each in (guard, postfix, restored_engines.postgresql, restored_engines.rspamd)]
        faults: list[Fault] = [*(FullDisk(name, disk) for name, disk in disks.items()), *killed]
        schedule = FaultSchedule(faults, random.Random(f"{SEED} {way}"))
        with load.running(), schedule.ended_on_exit():
            inject_faults(schedule, load, sink, postfix, way)
        postfix.flush()
        assert wait_until(lambda: postfix.waiting() == 0, PATIENCE, 0.5), f"{postfix.waiting()} wait in Postfix's queue"
        took = time.monotonic() - began
        held = read_quarantine(database_url, guard.folder, folder / "vault", folder)
        deferrals = read_deferrals(postfix.log)
        check = DeliveryCheck(load, sink, held, alone=alone, deferrals=deferrals, injected=schedule.injected)
        totals = check.close()
        # That there is no room is told as an error, too; a bug has its exception with it.
        bugs = [line for line in guard.log.read_text("utf-8", "replace").splitlines() if '"exception":' in line]

    reported = load.put_off + Counter(plainly(each.reported) for those in deferrals.values() for each in those)
    for line in report(way, load, schedule, totals, took, reported, sum(each.failed_starts for each in killed)):
        note(line)
    assert not bugs, bugs[:3]
    assert schedule.rounds >= 1, "not everything has injected: this run shows little"
    assert not load.given_up, "these were put off without end"
    assert len(load.accepted) + len(load.refused) >= LEAST
    assert {"quarantine", "sink"} <= set(totals.places), totals.places
    assert not totals.lost, f"accepted, and nowhere: {totals.lost}"
    assert not totals.changed, f"not byte for byte: {totals.changed}"
    assert not totals.unexplained, f"more than once for no reason: {totals.unexplained}"


def report(
    way: Way,
    load: MailLoad,
    schedule: FaultSchedule,
    totals: DeliveryTotals,
    took: float,
    reported: Counter[str],
    failed_starts: int,
) -> Iterator[str]:
    refused = Counter(plainly(reply) for reply in load.refused.values())
    twice = sum(totals.doubled.values())
    yield (
        f"{way}: {len(load.accepted)} messages accepted in {took:.0f} s, {len(totals.lost)} lost, "
        f"{len(totals.changed)} changed, {twice} more than once; where they are: {dict(totals.places)}"
    )
    yield f"{way}: faults {dict(schedule.counts)} (seed {SEED}), {failed_starts} starts failed; refused {dict(refused)}"
    yield f"{way}: more than once {dict(totals.doubled)}, because {dict(totals.reasons)}"
    yield f"{way}: tries put off {dict(reported.most_common())}; copies as Postfix alone makes them {totals.rewritten}"
