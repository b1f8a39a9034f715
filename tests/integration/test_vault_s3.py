"""A vault in a bucket of real S3 servers: moto, from requirements/s3.txt, and radosgw of Debian 13."""

import asyncio
import http.client
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from mailwarden.crypto.keyring import BrokenSeal, KeyRing
from mailwarden.errors import StorageUnavailable
from mailwarden.quarantine.vault import Vault, open_vault
from mailwarden.serving.spool import Spooled
from mailwarden.settings.shared import Quarantine
from tests.conventions.project_files import ROOT
from workshop.rig.folders import remove_folder, temporary_folder
from workshop.rig.ports import free_port
from workshop.rig.process import ServerProcess
from workshop.rig.radosgw import Radosgw

HOST = "127.0.0.1"
BUCKET = "held"
TOOLS = ROOT / "run" / "s3"
RADOSGW = ROOT / "run" / "radosgw"
NORTH, SOUTH = uuid4(), uuid4()
LARGE = b"Subject: large\r\n\r\n" + bytes(range(256)) * 60_000
MESSAGES = pytest.mark.parametrize("message", [b"", b"hello", LARGE], ids=["empty", "small", "large"])

pytestmark = [pytest.mark.slow, pytest.mark.long]


class Moto(ServerProcess):
    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.address = f"http://{HOST}:{self.port}"
        command = [str(TOOLS / "bin" / "moto_server"), "-H", HOST, "-p", str(self.port)]
        super().__init__("moto", command, folder / "moto.log", lambda: self.ask("GET", "/") == 200)

    def ask(self, method: str, path: str) -> int:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=10.0)
        try:
            connection.request(method, path)
            return connection.getresponse().status
        finally:
            connection.close()


@pytest.fixture(scope="module", params=["moto", "radosgw"])
def server(request: pytest.FixtureRequest) -> Iterator[Moto | Radosgw]:
    yield from start_moto() if request.param == "moto" else start_radosgw()


def start_radosgw() -> Iterator[Radosgw]:
    if not (RADOSGW / "usr/bin/radosgw").exists():
        made = RADOSGW.with_name("radosgw.new")
        subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "--include=radosgw", "trixie", made], check=True)
        made.rename(RADOSGW)
    folder = temporary_folder()
    server = Radosgw(RADOSGW, folder / "radosgw.log")
    server.start()
    try:
        server.create_bucket(BUCKET)
        yield server
    finally:
        server.stop()
        remove_folder(folder)


def start_moto() -> Iterator[Moto]:
    sys.path.insert(0, str(ROOT / "packaging" / "test"))
    from locked_tools import install_tools

    install_tools(TOOLS, "s3")
    folder = temporary_folder()
    server = Moto(folder)
    server.start()
    assert server.ask("PUT", f"/{BUCKET}") == 200
    yield server
    server.stop()
    remove_folder(folder)


@pytest.fixture
def settings(server: Moto | Radosgw, tmp_path: Path) -> Quarantine:
    """Return a prefix of the bucket for this test."""
    (tmp_path / "s3").write_text("id\nsecret\n")
    return Quarantine(store=f"s3://{BUCKET}/{uuid4().hex}", endpoint=server.address, credentials="s3")


@pytest.fixture(autouse=True)
def known_defect(request: pytest.FixtureRequest, server: Moto | Radosgw) -> None:
    """Expect that radosgw 18.2.7 with dbstore returns other bytes than those of an upload in parts."""
    if isinstance(server, Radosgw) and request.node.callspec.params.get("message") == LARGE:
        reason = "dbstore damages uploads in parts, also without Mailwarden: docs/high-availability.md"
        request.applymarker(pytest.mark.xfail(reason=reason, raises=(BrokenSeal, AssertionError), strict=True))


def open_one(settings: Quarantine, folder: Path) -> Vault:
    return open_vault(settings, folder, KeyRing.of(b"k" * 64))


@MESSAGES
async def test_a_message_comes_back_byte_for_byte(settings: Quarantine, tmp_path: Path, message: bytes) -> None:
    address = await open_one(settings, tmp_path).put(NORTH, Spooled.of(message))
    found = await open_one(settings, tmp_path).get(NORTH, address, tmp_path)
    assert found.data() == message
    found.close()


@MESSAGES
async def test_writers_of_one_message_at_once_lose_nothing(
    settings: Quarantine, tmp_path: Path, message: bytes
) -> None:
    vaults = [open_one(settings, tmp_path) for _ in range(6)]
    addresses = set(await asyncio.gather(*(vault.put(NORTH, Spooled.of(message)) for vault in vaults)))
    assert len(addresses) == 1
    assert await vaults[0].verifies(NORTH, addresses.pop())


async def test_hosts_that_start_at_once_have_one_uid(settings: Quarantine, tmp_path: Path) -> None:
    vaults = [open_one(settings, tmp_path) for _ in range(8)]
    found = set(await asyncio.gather(*(vault.uid() for vault in vaults)))
    assert len(found) == 1
    assert found == {await open_one(settings, tmp_path).uid()}


async def test_all_messages_are_listed_and_removed(settings: Quarantine, tmp_path: Path) -> None:
    vault = open_one(settings, tmp_path)
    kept = {(tenant, await vault.put(tenant, Spooled.of(bytes([n])))) for n in range(10) for tenant in (NORTH, SOUTH)}
    await vault.uid()
    assert {(body.tenant, body.address) async for body in vault.bodies()} == kept
    for tenant, address in kept:
        await vault.remove(tenant, address)
        await vault.remove(tenant, address)
        assert not await vault.has(tenant, address)
    with pytest.raises(FileNotFoundError):
        await vault.get(*kept.pop(), tmp_path)


async def test_a_missing_bucket_is_reported(server: Moto | Radosgw, tmp_path: Path) -> None:
    (tmp_path / "s3").write_text("id\nsecret\n")
    vault = open_one(Quarantine(store="s3://nobody", endpoint=server.address, credentials="s3"), tmp_path)
    for message in (b"hello", LARGE):
        with pytest.raises(StorageUnavailable):
            await vault.put(NORTH, Spooled.of(message))
    with pytest.raises(StorageUnavailable):
        await vault.uid()
