"""`mailwarden quarantine digest`: switched on and off for a tenant, and shown before anybody is told."""

import asyncio
from uuid import UUID

import pytest

from mailwarden.access.tenant_store import TenantStore
from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Database
from mailwarden.model.scope import Scope
from mailwarden.quarantine.blob_store import FilesystemStore
from mailwarden.quarantine.model import RetentionDays
from mailwarden.quarantine.service import QuarantineWriter
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.quarantine.vault import Vault
from mailwarden.serving.spool import Spooled
from tests.integration.cli.key import KEY
from tests.integration.held_messages import RAW, finished

COMMAND = "quarantine"


@pytest.fixture
def north(database_url, folder) -> UUID:
    """Return a tenant for whom a message is held."""

    async def work() -> UUID:
        database = Database(database_url)
        tenant = await TenantStore(database).create(Scope.deployment(), "North", ["north.example"])
        vault = Vault(FilesystemStore(folder / "quarantine"), KeyRing.of(KEY.encode()))
        request = finished(tenant.uid, subject="Cheap\x1b[31m watches at http://evil.example")
        await QuarantineWriter(vault, QuarantineStore(database), RetentionDays()).hold(request, Spooled.of(RAW))
        await database.close()
        return tenant.uid

    return asyncio.run(work())


def configure(folder, text: str) -> None:
    file = folder / "guard" / "core" / "guard.yml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_it_is_off_by_default(run, north):
    assert run("digest", "north").out == "North: the daily digest is off.\n"
    assert run("digest", "North", "--on").out == "North: the daily digest is on.\n"
    assert run("digest", north).out == "North: the daily digest is on.\n"
    assert run("digest", "North", "--off").out == "North: the daily digest is off.\n"
    assert "no recipient domains" in run("digest", "default", "--on").err


def test_switching_it_on_warns_where_this_guard_sends_no_digests(run, north, folder):
    configure(folder, "scanSources: {}\n")
    assert "has no quarantine.digest" in run("digest", "North", "--on").err
    assert run("digest", "North", "--off").err == ""
    configure(folder, 'quarantine: {digest: {sender: q@north.example, link: "https://mail.example"}}\n')
    assert run("digest", "North", "--on").err == ""


def test_a_preview_shows_the_digest_and_sends_nothing(run, north, folder):
    configure(folder, "scanSources: {}\n")
    assert "no quarantine.digest" in run("digest", "North", "--preview", "ann@north.example", code=2).err
    configure(folder, 'quarantine: {digest: {sender: q@north.example, link: "https://mail.example"}}\n')
    for _ in range(2):  # nothing is noted
        shown = run("digest", "North", "--preview", "Ann@north.example").out
        assert shown.startswith("Subject: Held for you: 1 message\n")
        assert "Cheap [31m watches at http[:]//evil[.]example" in shown
        assert "https://mail.example/held/…" in shown
    assert "No new messages are held" in run("digest", "North", "--preview", "bob@north.example").out
    assert "in no domain of North" in run("digest", "North", "--preview", "ann@south.example", code=2).err
