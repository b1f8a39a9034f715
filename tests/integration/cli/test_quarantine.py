"""`mailwarden quarantine`: held messages shown, released by a guard, deleted, taken out."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from threading import Event, Thread
from uuid import UUID, uuid4

import pytest

from mailwarden.access.tenant_store import TenantStore
from mailwarden.cli import quarantine as command
from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Database
from mailwarden.lists.service import ListService
from mailwarden.lists.store import ListScope, ListStore
from mailwarden.model.outcome import Verdict
from mailwarden.model.scope import Scope
from mailwarden.quarantine.blob_store import FilesystemStore
from mailwarden.quarantine.model import HeldMessage, RetentionDays
from mailwarden.quarantine.release import ReleaseJob
from mailwarden.quarantine.release_store import ReleaseStore
from mailwarden.quarantine.service import QuarantineWriter
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.quarantine.vault import Vault
from mailwarden.serving.spool import Spooled
from tests.integration.cli.key import KEY
from tests.integration.held_messages import RAW, finished

COMMAND = "quarantine"


@pytest.fixture
def keep(database_url, folder):
    """Keep a message of the default tenant as a guard does."""

    def keep_one(**changes) -> str:
        async def work() -> UUID:
            database = Database(database_url)
            (tenant,) = await TenantStore(database).list(Scope.deployment())
            vault = Vault(FilesystemStore(folder / "quarantine"), KeyRing.of(KEY.encode()))
            request = finished(tenant.uid, **changes)
            uid = await QuarantineWriter(vault, QuarantineStore(database), RetentionDays()).hold(
                request, Spooled.of(RAW)
            )
            await database.close()
            return uid

        return str(asyncio.run(work()))

    return keep_one


class Refusing:
    async def inject(self, _: HeldMessage, recipients: Sequence[str], __: Spooled) -> Mapping[str, str]:
        return {each: "550 no" for each in recipients if each.startswith("bob@")}


@pytest.fixture
def guard(database_url, folder, tmp_path):
    """Do what a guard does with releases, until the test ends."""
    ends = Event()

    async def work() -> None:
        database = Database(database_url)
        vault = Vault(FilesystemStore(folder / "quarantine"), KeyRing.of(KEY.encode()))
        releasing = ReleaseJob(vault, ReleaseStore(database), Refusing(), spool=tmp_path)
        while not ends.is_set():
            await releasing.look()
            await asyncio.sleep(0.1)
        await database.close()

    thread = Thread(target=lambda: asyncio.run(work()))
    thread.start()
    yield
    ends.set()
    thread.join()


def entries(database_url: str, name: str) -> list[str]:
    async def work() -> list[str]:
        database = Database(database_url)
        (tenant,) = await TenantStore(database).list(Scope.deployment())
        async with ListService(ListStore(database, database)).reading(ListScope(tenant.uid), name) as reading:
            lines: list[bytes] = []

            async def take(piece: bytes) -> None:
                lines.append(piece)

            await reading.copy_to(take)
        await database.close()
        return [json.loads(line)["entry"] for line in b"".join(lines).splitlines()]

    return asyncio.run(work())


def test_messages_are_shown_and_found(run, keep):
    spam = keep(subject="Cheap\x1b[31m watches")
    phish = keep(verdict=Verdict.PHISHING, recipients=("ann@north.example", "bob@north.example"))
    assert [each["uid"] for each in run("ls", "-o", "json")] == [phish, spam]
    assert [each["uid"] for each in run("ls", "--verdict", "spam", "--tenant", "default", "-o", "json")] == [spam]
    shown = run("ls").out
    assert "\x1b" not in shown
    assert "ann@north.example +1" in shown
    assert "Nothing is held" in run("ls", "--sender", "nobody@x.example").out
    assert "held     bob@north.example" in run("show", phish).out
    assert "no such message" in run("show", uuid4(), code=2).err


def test_a_release_is_awaited_and_failures_are_reported(run, keep, guard, database_url):
    good, mixed = keep(), keep(recipients=("ann@north.example", "bob@north.example"))
    assert "released ann@north.example" in run("release", good, "--allow", "address").out
    assert entries(database_url, "sender-allow") == ["eve@evil.example"]
    seen = run("release", mixed, code=1).out
    assert "held     bob@north.example: 550 no" in seen
    assert "released ann@north.example" in run("release", mixed, "--to", "Ann@north.example").out, (
        "bob was not asked for"
    )
    run("release", mixed, "--to", "bob@north.example", code=1)


def test_without_a_guard_a_release_waits_and_that_is_said(run, keep, monkeypatch):
    monkeypatch.setattr(command, "PATIENCE", 0.1)
    assert "no guard has done it yet" in run("release", keep(), code=1).err


def test_messages_are_deleted_for_some_and_for_all(run, keep, database_url):
    uid = keep(recipients=("ann@north.example", "bob@north.example"))
    (one,) = run("delete", uid, "--to", "ann@north.example", "-o", "json")
    assert [each["state"] for each in one["recipients"]] == ["deleted", "held"]
    (whole,) = run("delete", uid, "--block", "domain", "-o", "json")
    assert (whole["stored"], [each["state"] for each in whole["recipients"]]) == (False, ["deleted"] * 2)
    assert entries(database_url, "sender-block") == ["*.evil.example", "evil.example"]
    assert "no longer stored" in run("release", uid, code=2).err


def test_the_message_itself_is_taken_out_byte_for_byte(run, keep, tmp_path):
    uid = keep()
    run("export", uid, tmp_path / "out.eml")
    assert (tmp_path / "out.eml").read_bytes() == RAW
    assert "cannot be written" in run("export", uid, tmp_path / "out.eml", code=2).err


def test_days_of_a_tenant_are_shown_changed_and_forgotten(run):
    assert "As guard.yml says." in run("retention", "default").out
    assert run("retention", "default", "--set", "malware=7", "--set", "default=60", "-o", "json") == {
        "default": 60,
        "malware": 7,
    }
    assert "malware  7 days" in run("retention", "default").out
    assert run("retention", "default", "--reset", "-o", "json") == {}
    for wrong in ("malware", "malware=x", "nonsense=3", "spam=0"):
        run("retention", "default", "--set", wrong, code=2)
