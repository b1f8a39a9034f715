"""`mailwarden doctor`: each thing that is wrong has its line, with what to do about it."""

import asyncio
import contextlib
import datetime
import json
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

from mailwarden.cli.certificates import renew_certificates
from mailwarden.cli.doctor import check_host
from mailwarden.cli.doctor.host import (
    check_certificates,
    check_folders,
    check_sandbox,
    check_secrets,
    check_sources,
    check_trust,
)
from mailwarden.cli.doctor.report import Check, Line
from mailwarden.cli.doctor.servers import check_database, check_engines, check_smtp
from mailwarden.cli.main import main
from mailwarden.crypto.keyring import read_ring
from mailwarden.database.migrations import migrate
from mailwarden.quarantine.blob_store import FilesystemStore
from mailwarden.quarantine.vault import Vault
from mailwarden.serving.spool import Spooled
from workshop.rig.engines import Engines
from workshop.rig.rspamd import PASSWORD

TENANT = UUID(int=7)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert main(["init", str(tmp_path / "made"), "--no-database"]) == 0
    return tmp_path / "made"


def teach(folder: Path, controller: str, redis: str) -> None:
    """Have the folder's guard taught by these."""
    file = folder / "guard" / "core" / "guard.yml"
    training = f'    training: {{controller: "{controller}", password: "{PASSWORD}", redis: "{redis}"}}\n'
    file.write_text(file.read_text().replace("  rspamd:\n", f"  rspamd:\n{training}"))


async def lines_of(folder: Path, *checks: Check) -> dict[str, Line]:
    """Return the lines of these checks by name; all of them take some seconds, most of them for their servers."""
    return {line.name: line async for line in check_host(folder, checks)}


async def look(folder: Path, *checks: Check) -> dict[str, tuple[bool, str]]:
    return {name: (line.well, line.seen) for name, line in (await lines_of(folder, *checks)).items()}


async def test_the_key_of_kept_messages_must_be_there_and_the_same_for_both(folder: Path):
    name, key = "key of kept messages", folder / "secrets" / "contents"
    assert (await look(folder, check_secrets))[name] == (True, str(key))
    assert "rspamd redis" not in await look(folder, check_engines), "nothing is learned, so nobody is asked"

    abby = folder / "abby" / "abby" / "abby.yml"
    (folder / "secrets" / "other").write_text("o" * 64)
    abby.write_text(abby.read_text().replace("key: secrets/contents", "key: secrets/other"))
    assert (await look(folder, check_secrets))[name] == (False, "secrets/contents and secrets/other differ")

    key.unlink()
    well, seen = (await look(folder, check_secrets))[name]
    assert not well
    assert "cannot read" in seen


async def test_trained_engines_are_checked(folder: Path, engines: Engines):
    teach(folder, engines.rspamd.controller_address, engines.redis.url)
    seen = await look(folder, check_engines)
    assert seen["rspamd controller"] == (True, f"Rspamd's controller at {engines.rspamd.controller_address}")
    well, redis = seen["rspamd redis"]
    assert well
    assert redis.startswith("Redis ")


async def test_trained_engines_that_do_not_answer_are_reported(folder: Path):
    teach(folder, "tcp:127.0.0.1:9", "redis://secret@127.0.0.1:9/0")
    seen = await look(folder, check_engines)
    assert not seen["rspamd controller"][0]
    well, redis = seen["rspamd redis"]
    assert not well
    assert "secret" not in redis


async def test_an_unreadable_folder_is_reported(tmp_path: Path):
    folder = tmp_path / ("x" * 300)  # as one of another user, which root would read
    assert (await look(folder))["configuration"] == (False, f"{folder}:1: cannot be read: File name too long")


async def test_invalid_certificates_are_reported_without_an_exception(folder: Path):
    abby = folder / "tls" / "abby.key"
    abby.chmod(0o644)
    seen = await look(folder, check_certificates)
    assert seen["certificate abby"] == (False, f"{abby} is open to every user of this host")
    assert seen["certificate guard"][0]

    abby.write_bytes((folder / "tls" / "guard.key").read_bytes())
    assert (await look(folder, check_certificates))["certificate abby"] == (
        False,
        f"tls: {abby} is not the key of {folder}/tls/abby.crt.",
    )
    (folder / "tls" / "guard.key").unlink()
    assert "cannot be read" in (await look(folder, check_certificates))["certificate guard"][1]


async def test_the_key_of_the_authority_on_a_service_host_is_a_warning(folder: Path, tmp_path: Path):
    line = (await lines_of(folder, check_trust))["key of the authority"]
    assert (line.well, line.state) == (True, "warn")
    assert f"{folder}/tls/ca.key" in line.seen
    (folder / "tls" / "ca.key").rename(folder / "secrets" / "spare.pem")
    assert (await look(folder, check_trust))["key of the authority"][1].startswith(f"{folder}/secrets/spare.pem")
    (folder / "secrets" / "spare.pem").rename(tmp_path / "ca.key")
    line = (await lines_of(folder, check_trust))["key of the authority"]
    assert line.state == "ok"


async def test_a_scan_source_without_a_secret_is_a_warning(folder: Path):
    file = folder / "guard" / "core" / "guard.yml"
    text = file.read_text()
    file.write_text(text.replace("  restApi: {}\n", "  restApi: {}\n  rspamdApi: {allowWithoutSecret: true}\n"))
    lines = await lines_of(folder, check_sources)
    assert lines["scan source rspamdApi"].state == "warn"
    assert "set scanSources.rspamdApi.password" in lines["scan source rspamdApi"].remedy
    secured = "  restApi: {}\n  rspamdApi: {password: 0123456789abcdef}\n"
    file.write_text(text.replace("  restApi: {}\n", secured))
    assert "scan source rspamdApi" not in await lines_of(folder, check_sources)


async def test_a_certificate_of_tomorrow_speaks_of_the_clock(folder: Path, monkeypatch: pytest.MonkeyPatch):
    class Tomorrow(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> "Tomorrow":
            return super().now(tz) + datetime.timedelta(days=1)

    with monkeypatch.context() as patched:
        patched.setattr("mailwarden.cli.certificates.datetime.datetime", Tomorrow)
        renew_certificates(folder / "tls", [])
    lines = await lines_of(folder, check_certificates)
    assert not lines["certificate abby"].well
    assert lines["certificate abby"].remedy == "set this host's clock right"


@pytest.mark.parametrize(("name", "file"), [("pepper of API keys", "pepper"), ("key of kept messages", "contents")])
async def test_a_world_readable_secret_is_reported(folder: Path, name: str, file: str):
    secret = folder / "secrets" / file
    secret.chmod(0o604)
    assert (await look(folder, check_secrets))[name] == (False, f"{secret} is open to every user of this host")
    secret.chmod(0o640)
    assert (await look(folder, check_secrets))[name][0], "a group of its own may read it"


async def test_a_file_in_place_of_a_folder_is_reported(folder: Path):
    (folder / "spool").rmdir()
    (folder / "spool").touch()
    (folder / "lists").touch()
    seen = await look(folder, check_folders)
    assert seen["spool abby"] == seen["spool guard"] == (False, f"{folder}/spool is not a folder")
    assert seen["lists guard"] == (False, f"{folder}/lists is not a folder")


async def test_the_reason_of_a_database_failure_is_reported(folder: Path, database_url: str):
    def address(text: str) -> None:
        for file in (folder / "abby" / "abby" / "abby.yml", folder / "guard" / "core" / "guard.yml"):
            lines = file.read_text().splitlines()
            file.write_text("\n".join(f'  url: "{text}"' if line.startswith("  url: ") else line for line in lines))

    address(database_url.rpartition("/")[0] + "/nosuch")
    well, seen = (await look(folder, check_database))["database"]
    assert not well
    assert 'database "nosuch" does not exist' in seen

    address(database_url)
    await migrate(database_url)
    assert (await look(folder, check_database))["database"][0]
    connection = await asyncpg.connect(database_url)
    await connection.execute("INSERT INTO applied_migrations (name, checksum) VALUES ('9999_later', '')")
    await connection.close()
    line = (await lines_of(folder, check_database))["database"]
    assert "made by a newer Mailwarden" in line.seen
    assert not line.remedy, "PostgreSQL runs, so that nobody is told to start it"


async def test_a_key_that_opens_no_held_message_is_reported(folder: Path):
    file, key = folder / "guard" / "core" / "guard.yml", folder / "secrets" / "contents"
    file.write_text(file.read_text().replace("  restApi: {}", "  restApi: {}\n  smtp: {}"))
    vault = Vault(FilesystemStore(folder / "quarantine"), read_ring(key, "contents.key"))
    address = await vault.put(TENANT, Spooled.of(b"Subject: held\r\n\r\n"))
    await vault.put(TENANT, Spooled.of(b"Subject: held as well\r\n\r\n"))
    assert (await look(folder, check_smtp))["quarantine guard"][0]

    body = folder / "quarantine" / TENANT.hex / address.hex()[:2] / address.hex()
    body.write_bytes(body.read_bytes()[:-1])
    assert (await look(folder, check_smtp))["quarantine guard"][0], "one that is broken says nothing of the key"

    key.write_text("o" * 64)
    assert (await look(folder, check_smtp))["quarantine guard"] == (
        False,
        "quarantine: held messages do not open with secrets/contents",
    )


async def test_a_vault_of_another_deployment_is_reported(tmp_path: Path, database_url: str):
    folder = tmp_path / "made"
    assert main(["init", str(folder), "--no-database", "--database-url", database_url]) == 0
    file = folder / "guard" / "core" / "guard.yml"
    file.write_text(file.read_text().replace("  restApi: {}", "  restApi: {}\n  smtp: {}"))
    (folder / "quarantine").mkdir(exist_ok=True)
    assert (await look(folder, check_smtp))["quarantine guard"][0]
    (folder / "quarantine" / "owner").write_text(str(TENANT))
    line = (await lines_of(folder, check_smtp))["quarantine guard"]
    assert not line.well
    assert f"belongs to the deployment {TENANT}" in line.seen
    assert f"mailwarden quarantine take-ownership {TENANT}" in line.remedy


async def test_the_next_hop_is_asked_for_its_greeting(folder: Path):
    file = folder / "guard" / "core" / "guard.yml"
    plain = file.read_text()
    assert "smtp.nextHop" not in await look(folder, check_smtp), "nothing is handed on"

    async with next_hop(b"220 mail.example ESMTP\r\n") as port:
        file.write_text(plain.replace("  restApi: {}", f"  restApi: {{}}\n  smtp: {{nextHop: '127.0.0.1:{port}'}}"))
        assert (await look(folder, check_smtp))["smtp.nextHop"] == (True, f"127.0.0.1:{port}: 220 mail.example ESMTP")
    well, seen = (await look(folder, check_smtp))["smtp.nextHop"]
    assert not well
    assert "Connect call failed" in seen
    async with next_hop(b"554 5.7.1 not you\r\n") as port:
        file.write_text(plain.replace("  restApi: {}", f"  restApi: {{}}\n  smtp: {{nextHop: '127.0.0.1:{port}'}}"))
        assert (await look(folder, check_smtp))["smtp.nextHop"] == (False, f"127.0.0.1:{port}: 554 5.7.1 not you")


@contextlib.asynccontextmanager
async def next_hop(greeting: bytes) -> AsyncIterator[int]:
    """Listen as a mail server that greets everybody so."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await reader.readline()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        served.set()

    served = asyncio.Event()
    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        yield int(server.sockets[0].getsockname()[1])
        async with asyncio.timeout(60):
            await served.wait()


async def test_json_output_has_every_line_and_the_exit_code(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert await asyncio.to_thread(main, ["doctor", "--config", str(folder), "-o", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    states = {line["name"]: line["state"] for line in report["checks"]}
    assert report["well"] is False
    assert states["configuration"] == "ok"
    assert states["rspamd"] == "FAIL"


def test_a_warning_shows_its_remedy_and_is_no_failure():
    line = Line(True, "authority", "tls/ca.key is on this host", "move it away", warning=True)
    assert line.state == "warn"
    assert str(line).splitlines()[1].strip() == "-> move it away"


async def test_the_sandbox_is_tried_and_a_disabled_one_is_a_warning(folder: Path):
    lines = await lines_of(folder, check_sandbox)
    assert lines["sandbox guard"].state == "ok"
    assert lines["sandbox abby"].seen.endswith("seccomp")

    file = folder / "guard" / "core" / "guard.yml"
    file.write_text(file.read_text() + "workers:\n  sandbox: disabled\n")
    lines = await lines_of(folder, check_sandbox)
    assert lines["sandbox guard"].state == "warn"
    assert "disabled by workers.sandbox" in lines["sandbox guard"].seen
