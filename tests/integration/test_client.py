"""The client and `mailwarden lists` before a real abby."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from mailwarden_client import (
    AsyncClient,
    CallRefused,
    Client,
    KeyRefused,
    NewEntry,
    NotFound,
    Retries,
    ScopeRefused,
    Unreachable,
    requests,
)
from workshop.rig.engines import Engines
from workshop.rig.product import Product, install_product

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Abby:
    """abby alone: lists need no guard."""

    product: Product
    key: str
    tenant_key: str
    tenant: str

    def client(self, key: str = "") -> Client:
        return Client(self.product.url, key or self.key, ca=self.product.ca)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "mailwarden", *words, "--config", str(self.product.abby.folder)]

    def run(self, *words: str, given: str = "", code: int = 0, key: str = "") -> str:
        environment = {**os.environ, "MAILWARDEN_API_KEY": key or self.key}
        done = subprocess.run(
            self.command(*words), check=False, capture_output=True, text=True, input=given, timeout=60, env=environment
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def abby(engines: Engines, database_template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Abby]:
    database = engines.postgresql.create_database("client", template=database_template)
    product = install_product(tmp_path_factory.mktemp("client"), engines, database, abby={"listsRateLimit": 100_000})
    product.abby.start()
    try:
        bare = Abby(product, "-", "-", "")
        tenant = json.loads(bare.run("tenants", "create", "acme", "-o", "json"))["tenantUid"]
        scopes = ("--scope", "lists:read", "--scope", "lists:write", "-o", "json")
        made = json.loads(bare.run("keys", "create", "soar", "--global", *scopes))
        bound = json.loads(bare.run("keys", "create", "acme", "--tenant", tenant, *scopes))
        yield Abby(product, made["key"], bound["key"], tenant)
    finally:
        product.abby.stop()


def numbered(count: int, start: int = 0) -> list[str]:
    return [f"u{number:06d}@spam.example" for number in range(start, start + count)]


def test_entries_are_added_streamed_and_deleted_in_calls_of_500(abby):
    with abby.client() as client:
        assert len(client.lists()) == 16
        assert client.add_entries("sender-block", (NewEntry(each, "feed") for each in numbered(1234))) == 1234
        with client.stream_entries("sender-block") as stream:
            assert stream.count == 1234
            assert [(each.entry, each.comment) for each in stream] == [(each, "feed") for each in numbered(1234)]
        assert client.delete_entries("sender-block", (each.entry for each in client.entries("sender-block"))) == 1234
        assert list(client.entries("sender-block")) == []


def test_the_awaited_client_does_the_same_for_a_tenant(abby):
    async def story() -> list[str]:
        async with AsyncClient(abby.product.url, abby.tenant_key, ca=abby.product.ca) as client:
            expires = datetime(2030, 1, 1, tzinfo=UTC)
            assert (
                await client.add_entries(
                    "ip-block", ["192.0.2.7", NewEntry("198.51.100.0/24", "", expires)], abby.tenant
                )
                == 2
            )
            found = [each async for each in client.entries("ip-block", abby.tenant)]
            assert await client.delete_entries("ip-block", [each.entry for each in found], abby.tenant) == 2
            return [f"{each.entry} {each.expires} {each.created_by}" for each in found]

    assert asyncio.run(story()) == [
        "192.0.2.7 None key:acme",
        "198.51.100.0/24 2030-01-01 00:00:00+00:00 key:acme",
    ]


def test_errors_carry_the_fields_of_the_api(abby):
    with abby.client() as client:
        with pytest.raises(NotFound, match="list_not_found"):
            client.add_entries("no-such-list", ["a.example"])
        with pytest.raises(CallRefused) as refused:
            client.add_entries("sender-block", [*numbered(500), "fine.example", "not an entry"])
        assert refused.value.code == "invalid_entry"
        assert refused.value.acknowledged == 500
        assert refused.value.details[0]["index"] == 1
        assert refused.value.request_id
        client.delete_entries("sender-block", numbered(500))
    with abby.client(abby.tenant_key) as client, pytest.raises(ScopeRefused) as hidden:
        client.lists()
    assert hidden.value.code == "global_scope_forbidden"
    with abby.client("mwk_wrong") as client, pytest.raises(KeyRefused, match="invalid_credentials"):
        client.lists()


def test_reports_of_the_same_microsecond_are_all_listed(abby, engines, monkeypatch):
    scopes = ("--scope", "reports:write", "-o", "json")
    made = json.loads(abby.run("keys", "create", "reports", "--tenant", abby.tenant, *scopes))
    with abby.client(made["key"]) as client:
        stored = {
            client.report(f"Subject: report {number}\r\n\r\ntext {number}\r\n".encode(), "spam", abby.tenant).uid
            for number in range(5)
        }
        engines.postgresql.execute(
            "UPDATE training_reports SET reported_at = '2026-11-17 09:00:00.000001+00'", "client"
        )
        monkeypatch.setattr(requests, "_DEFAULT_LIMIT", 2)
        listed = [each.uid for each in client.reports(abby.tenant)]
    assert (set(listed), len(listed)) == (stored, 5)


def test_an_unknown_authority_is_reported_without_retries(abby):
    with (
        Client(abby.product.url, abby.key, retries=Retries(attempts=50)) as client,
        pytest.raises(Unreachable, match="certificate"),
    ):
        client.lists()


def test_the_command_shows_changes_and_checks_lists(abby):
    run = abby.run
    assert "sender-block" in run("lists", "ls")
    assert run("lists", "add", "url-block", "hxxps://evil[.]example/login", "--comment", "ticket 4711") == (
        "1 entry added or updated in url-block (global).\n"
    )
    assert run("lists", "entries", "url-block") == "evil.example/login  # ticket 4711\n"
    run("lists", "add", "url-allow", "evil.example", "--tenant", abby.tenant)
    text = run("lists", "check", "https://evil.example/login?x=1", "--tenant", abby.tenant)
    assert "=> url-allow, tenant" in text
    assert "loses   url-block" in text
    checked = json.loads(run("lists", "check", "evil.example/login", "-o", "json"))
    assert [(match["entry"], match["acts"]) for match in checked["matches"]] == [("evil.example/login", True)]
    words = ("lists", "check", "evil.example/login", "--tenant", abby.tenant)
    assert "this key may not see them" in run(*words, key=abby.tenant_key)
    assert "not looked at: url-block" in run("lists", "check", "evil.example/login", "--max-entries", "0")
    assert "1 entry deleted" in run("lists", "delete", "url-block", "evil.example/login")
    assert "'co.uk'" in run("lists", "add", "sender-block", "co.uk", code=2)
    assert "Cannot read the API key" in run("lists", "ls", "--key-file", "/nonexistent", code=2)


def test_a_feed_is_previewed_imported_and_synchronised(abby, tmp_path):
    feed = tmp_path / "feed.txt"
    feed.write_text("# hosts\none.example\nTWO.example\none[.]example\n!!\n")
    words = ("lists", "import", "url-block", str(feed), "--comment", "feed:a")

    dry = abby.run(*words, "--dry-run")
    assert "new                 2" in dry
    assert "line 5: '!!'" in dry
    assert "line 5" in abby.run(*words, "--yes", code=2)
    done = json.loads(abby.run(*words, "--yes", "--skip-invalid", "-o", "json"))
    assert (done["new"], done["repeated"], done["invalid"], done["modifiedEntries"]) == (2, 1, 1, 2)
    abby.run("lists", "add", "url-block", "mine.example", "--comment", "by hand")

    feed.write_text("two.example\nthree.example\n")
    done = json.loads(abby.run(*words, "--yes", "--prune", "-o", "json"))
    assert (done["new"], done["unchanged"], done["deletedEntries"]) == (1, 1, 1)
    assert abby.run("lists", "export", "url-block", "-o", "txt") == "mine.example\nthree.example\ntwo.example\n"
    feed.write_text("\n")
    assert "empty the feed" in abby.run(*words, "--yes", "--prune", code=2)


def test_an_export_can_be_imported(abby, tmp_path):
    with abby.client() as client:
        client.add_entries("subject-block", [NewEntry('say "now", please', "two\nlines"), NewEntry("/w[o0]n/i")])
        before = list(client.entries("subject-block"))
        for form in ("csv", "ndjson"):
            path = tmp_path / f"subjects.{form}"
            abby.run("lists", "export", "subject-block", "-o", form, "--to", str(path))
            client.delete_entries("subject-block", (each.entry for each in before))
            abby.run("lists", "import", "subject-block", "-", "--format", form, "--yes", given=path.read_text())
            after = [(each.entry, each.comment) for each in client.entries("subject-block")]
            assert after == [(each.entry, each.comment) for each in before]


def test_an_import_that_was_killed_goes_on_where_it_stopped(abby, tmp_path):
    feed = tmp_path / "feed.csv"
    entries = numbered(20_000)
    feed.write_text("entry,comment\n" + "".join(f"{each},feed\n" for each in entries))
    state = tmp_path / "feed.csv.import-state"
    words = ("lists", "import", "sender-block", str(feed), "--yes", "--no-compare", "-o", "json")
    environment = {**os.environ, "MAILWARDEN_API_KEY": abby.key}

    running = subprocess.Popen(abby.command(*words), env=environment, stdout=subprocess.DEVNULL)
    try:
        assert wait_for(lambda: state.exists() and running.poll() is None)
    finally:
        running.kill()
        running.wait()
    reached = json.loads(state.read_text())["line"]
    assert 0 < reached < 20_001
    done = json.loads(abby.run(*words))

    assert done["sent"] == 20_001 - reached
    assert done["modifiedEntries"] == done["sent"]
    assert not state.exists()
    assert abby.run("lists", "export", "sender-block", "-o", "txt").splitlines() == entries
    enough = subprocess.run(
        ["sh", "-c", f"{' '.join(abby.command('lists', 'entries', 'sender-block'))} | head -1"],
        check=False, capture_output=True, text=True, timeout=60, env=environment,
    )  # fmt: skip
    assert (enough.stdout, enough.stderr) == ("u000000@spam.example  # feed\n", "")


def test_an_unfinished_stream_does_not_block_close(abby):
    with abby.client() as client:
        client.add_entries("sender-allow", numbered(2))
        unfinished = client.entries("sender-allow")
        assert next(unfinished).entry == "u000000@spam.example"
    unfinished.close()


def wait_for(condition, seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return False
