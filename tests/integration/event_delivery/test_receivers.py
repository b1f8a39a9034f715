"""Receivers: the tenants of each, what a tenant administrator may have, their secrets, and the command."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import msgspec
import pytest

from mailwarden.abby.config import PATH, AbbyConfig
from mailwarden.access.audit import AuditFilter, AuditStore
from mailwarden.access.tenant_store import TenantStore
from mailwarden.cli.doctor.report import Host
from mailwarden.cli.doctor.servers import check_event_receivers
from mailwarden.cli.main import main
from mailwarden.crypto.keyring import KeyRing, ring_text
from mailwarden.database.pool import Database
from mailwarden.errors import NameTaken, ReceiverNotFound, SchemaViolation
from mailwarden.event_delivery.delivery import Delivery
from mailwarden.event_delivery.http_client import DeliveryFailed
from mailwarden.event_delivery.model import Kind, NewReceiver
from mailwarden.event_delivery.senders import WebhookSender
from mailwarden.event_delivery.store import MAX_OF_TENANTS
from mailwarden.model.scope import Scope
from mailwarden.settings.reader import read
from mailwarden.telemetry.metrics import Metrics
from tests.integration.event_delivery.webhook_servers import ALL, PEPPER, ROOT, Outbox, WebhookServer, open_outbox

NORTH, SOUTH = uuid4(), uuid4()
URL = "https://hook.example/"


def webhook(*tenants: UUID, name: str = "soar") -> NewReceiver:
    return NewReceiver(name, Kind.WEBHOOK, URL, tenants=frozenset(tenants) or None)


async def test_an_receiver_gets_the_events_of_its_tenants_alone(outbox: Outbox, server: WebhookServer) -> None:
    await outbox.hand_over(await outbox.add(server), NORTH)
    outbox.channels = replace(outbox.channels, tenant_http=outbox.channels.http)  # to reach loopback
    async with outbox.running():
        mine = await outbox.emit(3, tenant=NORTH)
        await outbox.emit(3, tenant=SOUTH)
        await outbox.emit(3)  # of the deployment
        last = await outbox.emit(1, tenant=NORTH)
        await server.wait_for(4)
        await asyncio.sleep(0.3)
    assert server.ids == [*mine, *last]


async def test_an_receiver_of_a_tenant_reaches_no_allowed_private_network(
    outbox: Outbox, server: WebhookServer
) -> None:
    receiver = await outbox.add(server)
    await outbox.service.test(ALL, receiver.uid, outbox.channels, ROOT)
    await outbox.hand_over(receiver, NORTH)
    with pytest.raises(DeliveryFailed, match="receivers of the deployment"):
        await outbox.service.test(ALL, receiver.uid, outbox.channels, ROOT)
    assert len(server.seen) == 1


async def test_a_tenant_administrator_sees_and_changes_only_their_receivers(outbox: Outbox) -> None:
    service, north = outbox.service, Scope.of(NORTH)
    own, _ = await service.add(north, webhook(NORTH), ROOT)
    others = [await service.add(ALL, webhook(*tenants), ROOT) for tenants in ((SOUTH,), (NORTH, SOUTH), ())]
    assert [each.uid for each in await service.list(north)] == [own.uid]
    assert len(await service.list(ALL)) == 4
    assert await service.list(Scope.of()) == []
    for receiver, _ in others:
        for call in (
            service.find(north, receiver.uid),
            service.rotate(north, receiver.uid, ROOT),
            service.enable(north, receiver.uid, ROOT),
            service.disable(north, receiver.uid, ROOT),
            service.remove(north, receiver.uid, ROOT),
            service.test(north, receiver.uid, outbox.channels, ROOT),
        ):
            with pytest.raises(ReceiverNotFound):
                await call
    await service.remove(north, own.uid, ROOT)
    assert len(await service.list(ALL)) == 3


@pytest.mark.parametrize(
    "wanted",
    [
        NewReceiver("", Kind.WEBHOOK, URL),
        NewReceiver("a\nb", Kind.WEBHOOK, URL),
        NewReceiver("x" * 61, Kind.WEBHOOK, URL),
        NewReceiver("x", Kind.WEBHOOK, "ftp://hook.example/"),
        NewReceiver("x", Kind.SYSLOG, URL),
        NewReceiver("x", Kind.FILE, "../abby.yml"),
        NewReceiver("x", Kind.WEBHOOK, URL, types=frozenset({"no.such"})),
        NewReceiver("x", Kind.WEBHOOK, URL, types=frozenset()),
        NewReceiver("x", Kind.WEBHOOK, URL, batch_size=501),
        NewReceiver("x", Kind.WEBHOOK, URL, batch_seconds=61),
        NewReceiver("x", Kind.FILE, "a.log", batch_size=2),
        NewReceiver("x", Kind.FILE, "a.log", tenants=frozenset({NORTH})),
        NewReceiver("x", Kind.WEBHOOK, "http://hook.example/", tenants=frozenset({NORTH})),
    ],
)
async def test_a_mistake_in_an_receiver_is_rejected(outbox: Outbox, wanted: NewReceiver) -> None:
    with pytest.raises(SchemaViolation):
        await outbox.service.add(ALL, wanted, ROOT)


async def test_two_receivers_cannot_write_to_one_file(outbox: Outbox) -> None:
    await outbox.service.add(ALL, NewReceiver("one", Kind.FILE, "siem.ndjson"), ROOT)
    with pytest.raises(NameTaken, match="`one` writes to"):
        await outbox.service.add(ALL, NewReceiver("two", Kind.FILE, "Siem.ndjson"), ROOT)
    await outbox.service.add(ALL, NewReceiver("two", Kind.FILE, "lake.ndjson"), ROOT)


async def test_names_and_numbers_of_receivers_are_limited_for_each_tenant(outbox: Outbox) -> None:
    for number in range(MAX_OF_TENANTS):
        await outbox.service.add(ALL, webhook(NORTH, name=f"hook {number}"), ROOT)
    with pytest.raises(SchemaViolation, match="at most"):
        await outbox.service.add(ALL, webhook(NORTH), ROOT)
    await outbox.service.add(ALL, webhook(SOUTH, name="HOOK 1"), ROOT)  # the name of another tenant's is no secret
    with pytest.raises(NameTaken):
        await outbox.service.add(ALL, webhook(SOUTH, name="hook 1"), ROOT)


async def test_the_audit_log_has_every_test_of_an_receiver(outbox: Outbox, server: WebhookServer) -> None:
    receiver = await outbox.add(server)
    await outbox.hand_over(receiver, NORTH)
    outbox.channels = replace(outbox.channels, tenant_http=outbox.channels.http)  # to reach loopback
    await outbox.service.test(Scope.of(NORTH), receiver.uid, outbox.channels, ROOT)
    server.status = 500
    with pytest.raises(DeliveryFailed):
        await outbox.service.test(Scope.of(NORTH), receiver.uid, outbox.channels, ROOT)
    with pytest.raises(ReceiverNotFound):
        await outbox.service.test(Scope.of(SOUTH), receiver.uid, outbox.channels, ROOT)
    events = await AuditStore(outbox.database).find(ALL, AuditFilter(action="receivers.test"))
    assert [(each.tenant, each.actor.name, each.subject) for each in events] == [(NORTH, ROOT.name, receiver.name)] * 2
    assert {each.details["uid"] for each in events} == {str(receiver.uid)}


async def test_no_secret_is_readable_in_the_database(outbox: Outbox) -> None:
    url = "https://hooks.example:8443/services/T0000/secret-part?sig=secret-part"
    receiver, secret = await outbox.service.add(ALL, NewReceiver("chat", Kind.WEBHOOK, url), ROOT)
    await outbox.service.remove(ALL, receiver.uid, ROOT)
    other, _ = await outbox.service.add(ALL, NewReceiver("chat", Kind.WEBHOOK, url + "2"), ROOT)
    async with outbox.database.connection() as connection:
        rows = await connection.fetch("SELECT * FROM event_receivers")
        audit = await connection.fetch("SELECT details FROM audit WHERE action LIKE 'receivers.%' ORDER BY number")
    everything = repr(rows) + repr(audit)
    assert (len(rows), len(audit)) == (1, 3)
    assert everything.count("https://hooks.example:8443/…") == 4
    assert "secret-part" not in everything
    assert secret[6:20] not in everything
    first, _, last = (json.loads(str(row["details"])) for row in audit)
    assert first["after"]["urlDigest"] != last["after"]["urlDigest"]
    sender = outbox.channels.sender_of(other)
    assert isinstance(sender, WebhookSender)
    assert sender._url() == url + "2"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a configuration folder of an abby that may reach loopback."""
    (tmp_path / "abby/abby").mkdir(parents=True)
    (tmp_path / "secrets").mkdir()
    config = {
        "serviceProviders": {"core": {"hosts": ["https://127.0.0.1:9785"]}},
        "events": {"allowPrivateNetworks": ["127.0.0.0/8"]},
    }
    (tmp_path / "abby/abby/abby.yml").write_text(json.dumps(config))
    (tmp_path / "secrets/pepper").write_text(ring_text(PEPPER.keys))
    (tmp_path / "secrets/contents").write_text(ring_text(KeyRing.of(b"c" * 32).keys))
    return tmp_path


async def test_the_command_manages_receivers(
    folder: Path, database: Database, database_url: str, server: WebhookServer, capsys: pytest.CaptureFixture[str]
) -> None:
    await TenantStore(database).create(ALL, "acme", ["acme.example"])

    async def run(*words: str) -> tuple[int, str]:
        where = ["--config", str(folder), "--database-url", database_url]
        code = await asyncio.to_thread(main, ["receivers", *words, *where])
        said = capsys.readouterr()
        return code, said.out or said.err

    assert (await run("add", "other", URL, "--tenant", "acme"))[0] == 0
    assert (await run("remove", "other"))[0] == 0
    code, server.secret = await run("add", "soar", server.url, "--type", "message.held")
    assert code == 0
    server.secret = server.secret.strip()
    assert server.secret.startswith("whsec_")
    assert (await run("test", "soar"))[0] == 0
    assert [document["type"] for document in server.seen] == ["receiver.test"]
    code, server.secret = await run("rotate", "SOAR")
    server.secret = server.secret.strip()
    assert (await run("test", "soar"))[0] == 0
    assert (await run("disable", "soar")) == (0, "Disabled soar.\n")
    (shown,) = json.loads((await run("list", "-o", "json"))[1])
    assert (shown["state"], shown["types"], shown["lastError"]) == (
        "disabled",
        ["message.held"],
        "Disabled by an administrator.",
    )
    assert shown["target"] == server.url.replace("hook", "…")
    text = (await run("list"))[1]
    assert "disabled" in text
    assert "/hook" not in text
    assert (await run("enable", "soar"))[0] == 0
    server.status = 500
    assert (await run("test", "soar")) == (
        2,
        "mailwarden: The test event was not delivered. The receiver answered 500.\n",
    )
    assert (await run("remove", shown["uid"])) == (0, "Removed soar.\n")
    code, error = await run("remove", "soar")
    assert (code, "receivers list" in error) == (2, True)
    assert (await run("add", "siem", "siem.ndjson", "--kind", "file"))[1].startswith("Added siem")


async def test_a_rotated_pepper_keeps_and_renews_the_secrets(
    folder: Path, database: Database, database_url: str, server: WebhookServer, capsys: pytest.CaptureFixture[str]
) -> None:
    async with open_outbox(database, folder) as outbox:
        receiver = await outbox.add(server)
        await outbox.service.rotate(ALL, receiver.uid, ROOT)
    where = ["--config", str(folder), "--database-url", database_url]
    old = PEPPER.current.name
    for words, code, part in (
        (["rotate", "pepper"], 0, ""),
        (["drop", "pepper", old], 2, "3 secrets of webhooks"),
        (["reencrypt", "pepper"], 0, "secrets of webhooks"),
        (["drop", "pepper", old], 0, "dropped"),
    ):
        assert await asyncio.to_thread(main, ["secrets", *words, *where]) == code
        said = capsys.readouterr()
        assert part in said.out + said.err
    assert await asyncio.to_thread(main, ["receivers", "test", str(receiver.uid), *where]) == 0


async def test_disabled_and_failing_receivers_are_reported(
    outbox: Outbox, server: WebhookServer, folder: Path, database_url: str
) -> None:
    """By `mailwarden doctor`, and by the metric of the alert; a receiver that an administrator disabled is not."""
    config = read(folder / PATH, AbbyConfig)
    abby = msgspec.structs.replace(config, database=msgspec.structs.replace(config.database, url=database_url))
    names = ("gone", "failing", "paused", "well")
    receivers = {
        name: (await outbox.service.add(ALL, NewReceiver(name, Kind.WEBHOOK, server.url), ROOT))[0] for name in names
    }
    delivery = Delivery(outbox.store, outbox.reader, outbox.channels, metrics := Metrics())
    await outbox.store.lease(ALL, delivery.process, 100)
    now = datetime.now(UTC)
    uid = receivers["failing"].uid
    await outbox.store.fail(ALL, uid, delivery.process, now=now, next_attempt=now, error="The receiver answered 500.")
    await outbox.store.disable(ALL, receivers["gone"].uid, "The receiver answered 410 Gone.", ROOT)
    await outbox.service.disable(ALL, receivers["paused"].uid, ROOT)
    lines = {line.name: line async for line in check_event_receivers(Host(folder, None, abby))}
    seen = {name: (lines[f"event receiver {name}"].warning, lines[f"event receiver {name}"].seen) for name in names}
    assert seen == {
        "gone": (True, "disabled. The receiver answered 410 Gone."),
        "failing": (True, f"failing since {now:%Y-%m-%d %H:%M} UTC. The receiver answered 500."),
        "paused": (False, "disabled by an administrator"),
        "well": (False, "0 events delivered"),
    }
    assert all(line.well for line in lines.values())
    await delivery._look()
    page = metrics.page().decode()
    await delivery.stop()
    assert "mailwarden_event_receivers_disabled 1.0" in page
    assert f'mailwarden_event_receiver_failing{{receiver="failing",uid="{uid}"}} 1.0' in page
    assert f'mailwarden_event_receiver_failing{{receiver="well",uid="{receivers["well"].uid}"}} 0.0' in page
