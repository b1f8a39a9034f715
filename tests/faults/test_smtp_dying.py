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

from rig.disk import SmallDisk
from rig.engines import Engines
from rig.folders import remove_folder, temporary_folder
from rig.postfix import Postfix, Way
from rig.process import RigError
from rig.product import install_product
from tests.acceptance.client import wait_until
from tests.faults.conftest import GUARD, Note
from tests.faults.mail_ledger import Account, Ledger, Register, read_deferrals, read_quarantine
from tests.faults.mail_load import MailLoad, plainly
from tests.faults.mailbag import DOMAIN, Mailbag, letters_of_corpus, own_letters
from tests.faults.mishaps import Fate, Full, Kill, Mishap

pytestmark = pytest.mark.slow

FULL = os.environ.get("MAILWARDEN_FULL") == "1"
CORPUS = os.environ.get("MAILWARDEN_CORPUS")
SEED = int(os.environ.get("MAILWARDEN_SEED", "6"))
MESSAGES = int(os.environ.get("MAILWARDEN_MESSAGES", "10000"))
HALF = MESSAGES // 2
LEAST, MOST = (HALF, HALF) if FULL else (40, 1_000)
SENDERS = 8 if FULL else 4
GAP = (1.0, 12.0) if FULL else (0.2, 0.6)  # seconds between two mishaps
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
def letters(engines: Engines) -> Mailbag:
    return letters_of_corpus(Path(CORPUS))[0] if CORPUS else own_letters(engines)


@pytest.fixture(scope="module")
def alone(letters: Mailbag) -> Mapping[int, bytes]:
    """Return what Postfix alone makes of each message: it drops fields like Bcc, and mends broken header blocks."""
    if not CORPUS:
        return {}
    folder = temporary_folder()
    try:
        with Register() as sink:
            postfix = Postfix(folder, "milter", DOMAINS, sink.port, retry=1)
            postfix.start()
            load = MailLoad(letters, postfix.port, SENDERS, MESSAGES, MESSAGES, PATIENCE)
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


def meddle(fate: Fate, load: MailLoad, sink: Register, postfix: Postfix, way: Way) -> None:
    """Let things happen while mail is on its way: once each, or in full until all of it has come through."""
    began, told = time.monotonic(), 0
    waiting = 0

    def look() -> None:
        nonlocal waiting, told
        waiting = postfix.waiting()
        (load.hold.set if waiting > MAX_WAITING else load.hold.clear)()
        accepted = len(load.accepted)
        if accepted // PROGRESS > told:
            told = accepted // PROGRESS
            say(
                f"{way}: {accepted} accepted, {len(load.refused)} refused, {len(sink.copies)} at the sink, "
                f"{waiting} waiting, {len(fate.happened)} mishaps, {time.monotonic() - began:.0f} s"
            )

    while not (load.done and waiting == 0 if FULL else fate.rounds):
        fate.wait(*GAP, look)
        fate.strike()


@pytest.mark.parametrize(("way", "mode"), [("before-queue", "beforeQueue"), ("after-queue", "afterQueue")])
def test_what_was_accepted_is_at_the_sink_or_in_quarantine_whatever_dies_or_is_full(
    note: Note,
    whole_engines: Engines,
    database_url: str,
    tmp_path: Path,
    folder: Path,
    letters: Mailbag,
    alone: Mapping[int, bytes],
    way: Way,
    mode: str,
) -> None:
    began = time.monotonic()
    with ExitStack() as stack:
        disks = small_disks(folder, note, stack)
        sink = stack.enter_context(Register())
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
        (guard,) = install_product(tmp_path, whole_engines, database_url, guards=({**GUARD, **own},)).guards
        stack.callback(guard.stop)
        guard.start()
        postfix.start()
        first = HALF * (way == "after-queue")
        load = MailLoad(letters, postfix.port, SENDERS, LEAST, MOST, PATIENCE, first=first, pause=PAUSE)
        killed = [Kill(each) for each in (guard, postfix, whole_engines.postgresql, whole_engines.rspamd)]
        mishaps: list[Mishap] = [*(Full(name, disk) for name, disk in disks.items()), *killed]
        fate = Fate(mishaps, random.Random(f"{SEED} {way}"))
        with load.running(), fate.over_at_the_end():
            meddle(fate, load, sink, postfix, way)
        postfix.flush()
        assert wait_until(lambda: postfix.waiting() == 0, PATIENCE, 0.5), f"{postfix.waiting()} wait in Postfix's queue"
        took = time.monotonic() - began
        held = read_quarantine(database_url, guard.folder, folder / "vault", folder)
        deferrals = read_deferrals(postfix.log)
        ledger = Ledger(load, sink, held, alone=alone, deferrals=deferrals, happened=fate.happened)
        account = ledger.close()
        # That there is no room is told as an error, too; a bug has its exception with it.
        bugs = [line for line in guard.log.read_text("utf-8", "replace").splitlines() if '"exception":' in line]

    told = load.put_off + Counter(plainly(each.told) for those in deferrals.values() for each in those)
    for line in report(way, load, fate, account, took, told, sum(each.failed_starts for each in killed)):
        note(line)
    assert not bugs, bugs[:3]
    assert fate.rounds >= 1, "not everything has happened: this run shows little"
    assert not load.given_up, "these were put off without end"
    assert len(load.accepted) + len(load.refused) >= LEAST
    assert {"quarantine", "sink"} <= set(account.places), account.places
    assert not account.lost, f"accepted, and nowhere: {account.lost}"
    assert not account.changed, f"not byte for byte: {account.changed}"
    assert not account.unexplained, f"more than once for no reason: {account.unexplained}"


def report(
    way: Way, load: MailLoad, fate: Fate, account: Account, took: float, told: Counter[str], failed_starts: int
) -> Iterator[str]:
    refused = Counter(plainly(reply) for reply in load.refused.values())
    twice = sum(account.doubled.values())
    yield (
        f"{way}: {len(load.accepted)} messages accepted in {took:.0f} s, {len(account.lost)} lost, "
        f"{len(account.changed)} changed, {twice} more than once; where they are: {dict(account.places)}"
    )
    yield f"{way}: mishaps {dict(fate.counts)} (seed {SEED}), {failed_starts} starts failed; refused {dict(refused)}"
    yield f"{way}: more than once {dict(account.doubled)}, because {dict(account.reasons)}"
    yield f"{way}: tries put off {dict(told.most_common())}; copies as Postfix alone makes them {account.rewritten}"
