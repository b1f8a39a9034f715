"""The previous version is upgraded in place under load, as docs/operating.md describes: no message is lost or changed.

MAILWARDEN_FULL=1 sends more, gives the previous version its own packages, restores backups from before and after the
upgrade into empty folders, and leaves them in run/upgrade for `packaging/test/restored.py`.
MAILWARDEN_PREVIOUS names another commit than the default.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.acceptance.client import Client, envelope
from tests.acceptance.list_client import ListClient, modified
from tests.acceptance.smtp import send
from tests.faults import previous_version
from tests.faults.conftest import STEADY, Note
from tests.faults.delivery_check import CopySink, DeliveryCheck, DeliveryTotals, read_deferrals, read_quarantine
from tests.faults.http_load import HttpLoad, kind_of
from tests.faults.invariants import ALLOWED
from tests.faults.mail_load import MailLoad
from tests.faults.numbered_messages import DOMAIN, MessageSource, NumberedMessage, own_messages
from tests.waiting import wait_until
from workshop.rig.engines import Engines, start_together
from workshop.rig.folders import remove_folder, temporary_folder
from workshop.rig.ports import free_port
from workshop.rig.postfix import Postfix
from workshop.rig.product import Overrides, Product, Service, install_product
from workshop.rig.samples import plain_message

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(not previous_version.find_commit(), reason="this checkout has no commits"),
]

FULL = os.environ.get("MAILWARDEN_FULL") == "1"
RUN = previous_version.ROOT / "run" / "upgrade"
PHASE = 200 if FULL else 5  # messages over SMTP and as many over HTTP in each phase, at least
SENDERS = 3 if FULL else 1  # for each Postfix
CLIENTS = 4 if FULL else 2
PAUSE = 0.3  # seconds between two messages of a sender: an overloaded machine would start processes in minutes
PATIENCE = 300.0
COMMAND_SECONDS = 120.0
FIRST_BEHIND = 400_000  # the first number of the Postfix that asks guard after its queue
KEPT = 900_003  # a spam message that is held before the upgrade
BLOCKED = f"blocked@{DOMAIN}"
RESTORED = "upgrade_restored"
HELD_KINDS = (3, 5, 8, 13, 15, 18)  # of `own_messages`
REFUSED_KIND = 17


@dataclass
class Deployment:
    """Two of each process: every guard has its own Postfix, and clients know both abby processes."""

    engines: Engines
    folder: Path
    database_url: str
    abbys: list[Service]
    guards: list[Service]
    postfixes: list[Postfix]
    sink: CopySink
    token: str
    key: str
    kept: NumberedMessage  # held before the upgrade

    @property
    def vault(self) -> Path:
        return self.folder / "vault"

    @property
    def configuration(self) -> Path:
        return self.abbys[0].folder

    def client(self) -> Client:
        return Client(self.abbys[0].url, self.configuration / "tls" / "ca.crt", self.token)

    def lists(self) -> ListClient:
        return ListClient(self.client().using(None), self.key)


@dataclass
class Phases:
    """How many messages were answered until each step of the upgrade."""

    http: HttpLoad
    mail: list[MailLoad]
    steps: list[tuple[str, int, int]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def begin(self, name: str) -> None:
        self.steps.append((f"{time.monotonic() - self.began:4.0f} s {name}", *self._answered()))

    def wait(self) -> tuple[int, int]:
        """Wait until enough messages are answered in this phase, and return their numbers over HTTP and SMTP."""
        _, http, smtp = self.steps[-1]
        assert wait_until(lambda: min(self._answered()[0] - http, self._answered()[1] - smtp) >= PHASE, PATIENCE)
        answered = self._answered()
        return answered[0] - http, answered[1] - smtp

    def report(self) -> Iterator[str]:
        ends = [*self.steps[1:], ("", *self._answered())]
        for (name, http, smtp), (_, http_end, smtp_end) in zip(self.steps, ends, strict=True):
            yield f"upgrade: {name}: {http_end - http} results over HTTP, {smtp_end - smtp} replies over SMTP"

    def _answered(self) -> tuple[int, int]:
        return len(self.http.results), sum(len(load.digests) for load in self.mail)


@pytest.fixture
def folder() -> Iterator[Path]:
    made = temporary_folder()
    yield made
    remove_folder(made)


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the interpreter of the previous version."""
    return previous_version.install(RUN if FULL else tmp_path_factory.mktemp("previous"), own_packages=FULL)


@contextmanager
def run_previous(engines: Engines, folder: Path, python: str) -> Iterator[Deployment]:
    """Install and start the previous version."""
    url = engines.postgresql.create_database("upgrade")
    with ExitStack() as stack:
        stack.callback(engines.postgresql.drop_database, "upgrade")
        sink = stack.enter_context(CopySink())
        domains = ("company.example", DOMAIN)
        before = Postfix(folder / "before", "before-queue", domains, sink.port, retry=1)
        behind = Postfix(folder / "behind", "after-queue", domains, sink.port, retry=1)
        guards = [beside(before, "beforeQueue", folder), beside(behind, "afterQueue", folder)]
        store = {"quarantine": {"store": str(folder / "vault")}, "listsRateLimit": 1_000_000}
        product = install_product(folder, engines, url, guards=guards, abby=store, python=python)
        deployment = Deployment(
            engines,
            folder,
            url,
            [product.abby, second_abby(product, python)],
            product.guards,
            [before, behind],
            sink,
            product.token,
            "",
            own_messages(engines.dns)(KEPT),
        )
        for service in (*deployment.guards, *deployment.abbys, *deployment.postfixes):
            stack.callback(service.stop)
        # The guards come first: an abby that finds none shows RED for the next ten seconds.
        for group in (deployment.guards, deployment.abbys, deployment.postfixes):
            start_together([server.start for server in group], group)
        yield deployment


def beside(postfix: Postfix, mode: str, folder: Path) -> Overrides:
    smtp = {"mode": mode, "listen": {"port": postfix.guard_port}, "nextHop": f"127.0.0.1:{postfix.back_port}"}
    return {**STEADY, "scanSources": {"smtp": smtp}, "quarantine": {"store": str(folder / "vault")}}


def second_abby(product: Product, python: str) -> Service:
    place = product.folder / "config-abby-2"
    shutil.copytree(product.abby.folder, place)
    abby = Service("abby-2", "abby", place, free_port(), python)
    abby.configure({"listen": {"port": abby.port}})
    return abby


def run_command(python: str, *words: str) -> str:
    done = subprocess.run(
        [python, "-m", "mailwarden", *words], check=False, capture_output=True, text=True, timeout=COMMAND_SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def with_refused(messages: MessageSource) -> MessageSource:
    """Add a kind that guard refuses before the queue: a message with a bare CR."""

    def make(number: int) -> NumberedMessage:
        made = messages(number)
        if number % 20 != REFUSED_KIND:
            return made
        return NumberedMessage(number, made.content + b"A bare CR\r ends no line.\r\n")

    return make


def prepare_state(deployment: Deployment, previous: str) -> None:
    """Make an API key, a list entry and a held message with the previous version."""
    words = ("--scope", "lists:read", "--scope", "lists:write", "--global", "-o", "json")
    made = run_command(previous, "keys", "create", "upgrade", *words, "--config", str(deployment.configuration))
    deployment.key = str(json.loads(made)["key"])
    assert modified(deployment.lists().add("sender-block", BLOCKED)) == 1
    kept = deployment.kept
    reply = send(deployment.postfixes[0].port, kept.content, sender=kept.sender)
    assert reply.startswith("250"), reply
    check_state(deployment)


def check_state(deployment: Deployment) -> None:
    """The API key works, and the list entry acts on a scan while others are delivered."""
    assert deployment.lists().names("sender-block") == [BLOCKED]
    client, plain = deployment.client(), plain_message()
    assert wait_until(
        lambda: client.submit(plain, envelope(envelopeFrom=BLOCKED)).result["decision"] == "quarantine"
    ), "the list entry acts"
    assert client.submit(plain).result["decision"] == "deliver"


def test_an_upgrade_in_place_loses_and_changes_no_message(
    note: Note, engines: Engines, folder: Path, previous: str
) -> None:
    messages = own_messages(engines.dns)
    with run_previous(engines, folder, previous) as deployment:
        prepare_state(deployment, previous)
        http = HttpLoad(deployment.abbys, deployment.token, CLIENTS, pause=PAUSE)
        ports = [postfix.port for postfix in deployment.postfixes]
        mail = [
            MailLoad(source, port, SENDERS, 1, 100_000, PATIENCE, first=first, pause=PAUSE)
            for source, port, first in zip((with_refused(messages), messages), ports, (0, FIRST_BEHIND), strict=True)
        ]
        phases = Phases(http, mail)
        archives = [folder / "previous.tar", folder / "upgraded.tar"]
        with http.running(), mail[0].running(), mail[1].running():
            upgrade(deployment, phases, archives, note)
        for postfix in deployment.postfixes:
            postfix.flush()
            assert wait_until(lambda postfix=postfix: postfix.waiting() == 0, PATIENCE, 0.5)
        for line in phases.report():
            note(line)
        check_http(deployment, http, note)
        check_mail(deployment, mail, note)
        check_logs(deployment)
        check_state(deployment)
        if FULL:
            check_doctor(deployment)
            run_command(sys.executable, "backup", str(archives[1]), "--config", str(deployment.configuration))
            stop_services(deployment)
            for archive in archives:
                check_restored(deployment, archive, note)
                keep(deployment, archive)


def upgrade(deployment: Deployment, phases: Phases, archives: list[Path], note: Note) -> None:
    """Follow the section Upgrade of docs/operating.md, with messages in each phase."""
    new, configuration = sys.executable, str(deployment.configuration)
    phases.begin("previous version")
    phases.wait()
    run_command(new, "config", "check", "--config", configuration)
    run_command(new, "backup", str(archives[0]), "--config", configuration)
    applied = run_command(new, "database", "migrate", "--config", configuration).strip()
    tables = add_columns(deployment)
    phases.begin("previous version after the migration")
    served = phases.wait()
    note(f"upgrade: `database migrate`: {applied}; then a column was added to each of {tables} tables")
    note(f"upgrade: old processes served {served[0]} requests and {served[1]} messages with the new schema")
    for service in (*deployment.guards, *deployment.abbys):
        began = time.monotonic()
        service.stop()
        stopped = time.monotonic()
        service.upgrade()
        service.start()
        started = time.monotonic()
        phases.begin(
            f"{service.name} is new (stopped in {stopped - began:.1f} s, started in {started - stopped:.1f} s)"
        )
        phases.wait()


def add_columns(deployment: Deployment) -> int:
    """Add a column to each table, as migrations of a later version may do; return the number of tables."""
    name = deployment.database_url.rpartition("/")[2]
    listed = deployment.engines.postgresql.execute(
        "SELECT tablename FROM pg_tables t WHERE schemaname = 'public' AND NOT EXISTS"
        " (SELECT FROM pg_inherits WHERE inhrelid = format('%I', tablename)::regclass)",
        name,
    )
    tables = listed.splitlines()
    for table in tables:
        deployment.engines.postgresql.execute(f'ALTER TABLE "{table}" ADD COLUMN added_later text', name)
    return len(tables)


def check_http(deployment: Deployment, load: HttpLoad, note: Note) -> None:
    """Every message has one result of its kind and one row; every attempt without a result was repeated."""
    retried = dict(load.retried)
    note(f"upgrade: HTTP: {load.sent} messages, {len(load.results)} results, repeated attempts {retried}")
    assert not load.given_up
    assert set(load.results) == set(range(load.sent))
    for number, answer in load.results.items():
        result = (str(answer.record["verdict"]), str(answer.record["decision"]))
        assert result in ALLOWED[kind_of(number)], (number, result)
        assert result[1] != "undecided", number
    for attempts in load.failures.values():
        for attempt in attempts:
            assert not attempt.reason.startswith("503") or attempt.retry_after, attempt
            assert attempt.reason.startswith(("connection ", "503 ")), attempt
    rows = history_rows(deployment)
    wrong = {number: rows.get(digest, 0) for number, digest in load.digests.items() if rows.get(digest) != 1}
    assert not wrong, f"rows of history by message: {wrong}"


def history_rows(deployment: Deployment) -> dict[str, int]:
    """Count the rows of history by the digest of the message."""
    text = deployment.engines.postgresql.execute(
        "SELECT sha256, count(*) FROM history GROUP BY sha256", deployment.database_url.rpartition("/")[2]
    )
    return {digest: int(count) for digest, _, count in (line.partition("|") for line in text.splitlines())}


def check_mail(deployment: Deployment, loads: list[MailLoad], note: Note) -> None:
    held = read_quarantine(deployment.database_url, deployment.configuration, deployment.vault, deployment.folder)
    for load, postfix in zip(loads, deployment.postfixes, strict=True):
        check = DeliveryCheck(load, deployment.sink, held, alone={}, deferrals=read_deferrals(postfix.log), injected=())
        totals = check.close()
        way = postfix.folder.name
        note(
            f"upgrade: SMTP {way} the queue: {len(load.accepted)} accepted, {len(load.refused)} refused, "
            f"{len(totals.lost)} lost, {len(totals.changed)} changed, {sum(totals.doubled.values())} more than once, "
            f"{dict(totals.places)}, put off {dict(load.put_off)}"
        )
        check_totals(load, totals, held, deployment.sink)


def check_totals(load: MailLoad, totals: DeliveryTotals, held: object, sink: CopySink) -> None:
    assert not load.given_up
    assert not totals.lost, f"accepted, and nowhere: {totals.lost}"
    assert not totals.changed, f"not byte for byte: {totals.changed}"
    assert not totals.doubled, totals.doubled
    assert isinstance(held, dict)
    for number in load.accepted:
        assert (number in held) == (number % 20 in HELD_KINDS), number
        assert (number in sink.copies) == (number % 20 not in HELD_KINDS), number
    assert all(number % 20 == REFUSED_KIND for number in load.refused), load.refused
    assert all(reply.startswith("550 5.5.2") for reply in load.refused.values()), load.refused


def check_logs(deployment: Deployment) -> None:
    for service in (*deployment.guards, *deployment.abbys):
        lines = service.log.read_text("utf-8", "replace").splitlines()
        bugs = [line for line in lines if '"exception":' in line]
        assert not bugs, f"{service.name}: {bugs[:3]}"


def check_doctor(deployment: Deployment) -> None:
    """The doctor finds no fault; it looks at the Postfix of this host, which is not part of the test."""
    words = [sys.executable, "-m", "mailwarden", "doctor", "--config", str(deployment.configuration)]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=PATIENCE)
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL ")]
    assert "ok    scans" in done.stdout, done.stdout + done.stderr
    assert all(line.split()[1] == "postfix" for line in failed), done.stdout


def stop_services(deployment: Deployment) -> None:
    for service in (*deployment.abbys, *deployment.guards):
        service.stop()


def check_restored(deployment: Deployment, archive: Path, note: Note) -> None:
    """Restore a backup into an empty database and empty folders, and use what it has."""
    postgresql, target = deployment.engines.postgresql, deployment.folder / f"restored-{archive.stem}"
    url = postgresql.create_database(RESTORED)
    try:
        target.mkdir()
        places = ("--database-url", url, "--state", str(target / "state"), "--spool", str(target / "spool"))
        run_command(sys.executable, "restore", str(archive), "--config", str(target / "config"), *places)
        guard = Service("guard-1", "guard", target / "config", deployment.guards[0].port)
        abby = Service("abby", "abby", target / "config", deployment.abbys[0].port)
        restored = replace(deployment, folder=target, database_url=url, abbys=[abby], guards=[guard])
        try:
            guard.start()
            abby.start()
            check_state(restored)
            release(restored)
        finally:
            stop_services(restored)
        note(f"upgrade: {archive.name} restored: API key works, list entry acts, held message released")
    finally:
        postgresql.drop_database(RESTORED)


def keep(deployment: Deployment, archive: Path) -> None:
    """Leave the backup for `packaging/test/restored.py`, with the values that it needs to use it."""
    shutil.copy(archive, RUN)
    values = {"token": deployment.token, "key": deployment.key, "blocked": BLOCKED, "sender": deployment.kept.sender}
    (RUN / "values.json").write_text(json.dumps(values), "utf-8")
    (RUN / "held.eml").write_bytes(deployment.kept.content)


def release(deployment: Deployment) -> None:
    """Release the message that was held before the upgrade; it arrives at the sink byte for byte."""
    kept = deployment.kept
    deployment.sink.copies.pop(kept.number, None)
    client = deployment.client()
    (found,) = client.call("GET", f"/v1/quarantine?sender={kept.sender}").json["messages"]
    path, headers = f"/v1/quarantine/{found['uid']}/release", {"Content-Type": "application/json"}
    assert client.call("POST", path, headers=headers, data=b"{}").status == 202
    assert wait_until(lambda: deployment.sink.copies.get(kept.number)), "the released message arrives"
    assert [copy.digest for copy in deployment.sink.copies[kept.number]] == [kept.digest]
