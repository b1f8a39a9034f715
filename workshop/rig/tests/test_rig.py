"""The rig starts real servers that answer, fail on purpose and come back, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import asyncpg
import pytest

from workshop.rig import postgresql, watcher
from workshop.rig.engines import Engines, start_engines, start_together
from workshop.rig.folders import remove_folder, temporary_folder
from workshop.rig.process import RigError, ServerProcess
from workshop.rig.product import Service
from workshop.rig.samples import plain_message, spam_message

pytestmark = pytest.mark.slow

ENVELOPE = {"From": "alice@pass.example", "Rcpt": "bob@company.example", "Helo": "mail.pass.example"}
# Tells the process id of each server to whoever started this, and then waits to be killed.
LONELY_RIG = """
import signal
from workshop.rig.engines import start_engines
engines = start_engines()
print(engines.folder, *(server.pid for server in engines.servers), flush=True)
signal.pause()
"""


@pytest.fixture(scope="module")
def own_engines():
    """Servers that these tests may hurt without hurting the tests of others."""
    with start_engines() as running:
        yield running


def symbols(answer: dict[str, object]) -> set[str]:
    found = answer["symbols"]
    assert isinstance(found, dict)
    return set(found)


def wait_for(condition, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_rspamd_never_greylists_a_message_it_has_seen(engines: Engines):
    actions = [engines.rspamd.scan(plain_message(), ENVELOPE | {"IP": "192.0.2.99"})["action"] for _ in range(3)]

    assert len(set(actions)) == 1
    assert "soft reject" not in actions


def test_a_signed_message_from_its_own_host_passes_spf_dkim_and_dmarc(engines: Engines):
    signed = engines.dns.sign(plain_message(), "pass.example")

    found = symbols(engines.rspamd.scan(signed, ENVELOPE | {"IP": "192.0.2.10"}))

    assert {"R_SPF_ALLOW", "R_DKIM_ALLOW", "DMARC_POLICY_ALLOW"} <= found


def test_a_signed_message_that_was_changed_fails_dkim(engines: Engines):
    changed = engines.dns.sign(plain_message(), "pass.example").replace(b"minutes of our", b"minutes of your")

    assert "R_DKIM_REJECT" in symbols(engines.rspamd.scan(changed, ENVELOPE | {"IP": "192.0.2.10"}))


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        ("softfail.example", {"R_SPF_SOFTFAIL"}),
        ("fail.example", {"R_SPF_FAIL", "DMARC_POLICY_REJECT"}),
        ("quarantine.example", {"R_SPF_FAIL", "DMARC_POLICY_QUARANTINE"}),
        ("reject.example", {"R_SPF_FAIL", "DMARC_POLICY_REJECT"}),
        ("neutral.example", {"R_SPF_NEUTRAL", "DMARC_NA"}),
        ("bare.example", {"R_SPF_NA", "DMARC_NA"}),
        ("silent.example", {"R_SPF_DNSFAIL"}),
    ],
)
def test_mail_from_a_foreign_host_is_judged_as_its_domain_says(engines: Engines, domain, expected):
    sender = f"alice@{domain}"

    found = symbols(engines.rspamd.scan(plain_message(sender), ENVELOPE | {"From": sender, "IP": "192.0.2.99"}))

    assert expected <= found


def test_dns_resolves_pointers_and_rejects_unknown_names_at_once(engines: Engines):
    assert engines.dns.look_up("10.2.0.192.in-addr.arpa", "PTR") == ["mail.pass.example."]
    took = []
    for _ in range(3):  # a busy machine may delay one of them
        began = time.monotonic()
        assert engines.dns.look_up("elsewhere.example", "MX") == []
        assert engines.dns.look_up("www.mailwarden.invalid", "A") == []
        took.append(time.monotonic() - began)
    assert min(took) < 3.0  # a resolver that asks on gives up after five


def test_a_domain_without_a_key_cannot_sign(engines: Engines):
    with pytest.raises(RigError, match=r"bare\.example publishes no DKIM key"):
        engines.dns.sign(plain_message(), "bare.example")


async def test_a_database_has_the_tables_of_this_version_and_is_not_owned_by_a_superuser(database_url):
    connection = await asyncpg.connect(database_url)
    try:
        assert await connection.fetchval("SELECT count(*) FROM applied_migrations") > 0
        assert await connection.fetchval("SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is False
    finally:
        await connection.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_a_statement_that_waits_too_long_names_the_open_transactions(engines: Engines, database_url, monkeypatch):
    monkeypatch.setattr(postgresql, "STATEMENT_SECONDS", 1)
    held = await asyncpg.connect(database_url)
    async with held.transaction():
        await held.fetch("SELECT count(*) FROM list_entries")
        with pytest.raises(RigError, match=r"statement timeout(?s:.)*idle in transaction(?s:.)*FROM list_entries"):
            engines.postgresql.execute("TRUNCATE list_entries", database_url.rpartition("/")[2])
    await held.close()


def test_the_sockets_are_open_to_every_user(engines: Engines):
    for path in (engines.rspamd.socket, engines.clamd.socket):
        connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        done = subprocess.run(["/usr/bin/python3", "-c", connect, str(path)], check=False, user="nobody", cwd="/")
        assert done.returncode == 0


@pytest.mark.parametrize("name", ["postgresql", "redis", "dns", "clamd", "rspamd"])
def test_a_killed_server_leaves_no_worker_and_comes_back_at_its_address(own_engines: Engines, name):
    server = getattr(own_engines, name)
    workers = watcher.tree(server.pid)
    address = server.address

    server.kill()

    assert not [pid for pid in workers if watcher.is_running(pid)]
    server.start()
    assert server.running
    assert server.address == address


def test_a_killed_server_restarts_and_its_orphans_are_ended(own_engines: Engines):
    workers = watcher.tree(own_engines.rspamd.pid)
    os.kill(own_engines.rspamd.pid, signal.SIGKILL)

    own_engines.rspamd.restart()

    assert not [pid for pid in workers if watcher.is_running(pid)]
    assert own_engines.rspamd.scan(spam_message())["action"] == "reject"


def test_committed_rows_survive_a_kill(own_engines: Engines):
    postgresql = own_engines.postgresql
    assert postgresql.execute("SHOW fsync") == "on"
    postgresql.create_database("kept")
    postgresql.execute("CREATE TABLE marks AS SELECT 42 AS mark", database="kept")

    postgresql.kill()
    postgresql.start()

    assert postgresql.execute("SELECT mark FROM marks", database="kept") == "42"


def test_a_paused_server_answers_nothing_until_it_is_resumed(own_engines: Engines):
    own_engines.clamd.pause()
    try:
        with pytest.raises(TimeoutError):
            own_engines.clamd.ping()
    finally:
        own_engines.clamd.resume()
    assert own_engines.clamd.ping()


def test_a_paused_server_can_be_stopped(own_engines: Engines):
    own_engines.redis.pause()

    own_engines.redis.restart()

    assert own_engines.redis.ping()


def test_nothing_is_running_and_no_folder_is_left_after_stop():
    engines = start_engines()
    pids = [pid for server in engines.servers for pid in watcher.tree(server.pid)]
    assert len(pids) > len(engines.servers)

    engines.stop()

    assert not [pid for pid in pids if watcher.is_running(pid)]
    assert not engines.folder.exists()


def test_a_rig_that_is_killed_leaves_no_process_and_no_folder():
    with subprocess.Popen([sys.executable, "-c", LONELY_RIG], stdout=subprocess.PIPE, text=True) as rig:
        assert rig.stdout is not None
        folder, *roots = rig.stdout.readline().split()
        pids = [pid for root in roots for pid in watcher.tree(int(root))]
        rig.kill()

    assert len(pids) > len(roots) == 5
    assert wait_for(lambda: not any(watcher.is_running(pid) for pid in pids), 30.0)
    assert wait_for(lambda: not Path(folder).exists(), 30.0)


def test_a_server_that_ends_early_is_reported_with_its_last_words(tmp_path):
    server = ServerProcess("grumpy", ["sh", "-c", "echo no such luck; exit 3"], tmp_path / "log", lambda: False)

    with pytest.raises(RigError, match=r"(?s)grumpy ended with code 3 before it was ready.*no such luck"):
        server.start()


def test_a_server_that_does_not_get_ready_is_ended_at_its_deadline(tmp_path):
    server = ServerProcess("slow", ["sleep", "60"], tmp_path / "log", lambda: False, deadline=0.2)

    with pytest.raises(RigError, match="slow was not ready within"):
        server.start()

    assert not server.running


def test_a_server_that_ignores_the_request_to_stop_is_killed(tmp_path):
    deaf = "trap '' TERM; touch ready; while :; do sleep 0.1; done"
    server = ServerProcess("deaf", ["sh", "-c", deaf], tmp_path / "log", (tmp_path / "ready").exists, grace=0.2)
    server.start()
    pid = server.pid

    server.stop()

    assert not watcher.is_running(pid)


def test_a_start_that_fails_breaks_off_the_other_starts_at_once(tmp_path):
    slow = ServerProcess("slow", ["sleep", "60"], tmp_path / "slow.log", lambda: False)
    broken = ServerProcess("broken", ["false"], tmp_path / "broken.log", lambda: False)
    began = time.monotonic()

    with pytest.raises(RigError, match="broken ended with code 1"):
        start_together([slow.start, broken.start], [slow, broken])

    assert time.monotonic() - began < 20.0
    assert not slow.running


def test_configure_merges_keys_and_keeps_the_others(tmp_path):
    path = tmp_path / "guard" / "core" / "guard.yml"
    path.parent.mkdir(parents=True)
    path.write_text("mainWorkerCount: 20 # sized\nlisten:\n  host: 127.0.0.1\n  port: 9785\n", "utf-8")

    Service("guard-1", "guard", tmp_path, 20_001).configure({"listen": {"port": 20_001}, "name": "guard-1"})

    assert path.read_text("utf-8") == (
        "mainWorkerCount: 20 # sized\nlisten:\n  host: 127.0.0.1\n  port: 20001\nname: guard-1\n"
    )


def test_a_temporary_folder_is_open_to_every_user_and_goes_when_it_is_removed():
    folder = temporary_folder()
    assert folder.stat().st_mode & 0o777 == 0o755

    remove_folder(folder)

    assert not folder.exists()
