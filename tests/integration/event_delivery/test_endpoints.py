"""Endpoints: the tenants of each, what a tenant administrator may have, their secrets, and the command."""

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
from mailwarden.cli.doctor.servers import check_event_endpoints
from mailwarden.cli.main import main
from mailwarden.crypto.keyring import KeyRing, ring_text
from mailwarden.database.pool import Database
from mailwarden.errors import EndpointNotFound, NameTaken, SchemaViolation
from mailwarden.event_delivery.delivery import Delivery
from mailwarden.event_delivery.http_client import DeliveryFailed
from mailwarden.event_delivery.model import Kind, NewEndpoint
from mailwarden.event_delivery.senders import WebhookSender
from mailwarden.event_delivery.store import MAX_OF_TENANTS
from mailwarden.model.scope import Scope
from mailwarden.settings.reader import read
from mailwarden.telemetry.metrics import Metrics
from tests.integration.event_delivery.receivers import ALL, PEPPER, ROOT, Outbox, Receiver, open_outbox

NORTH, SOUTH = uuid4(), uuid4()
URL = "https://hook.example/"


def webhook(*tenants: UUID, name: str = "soar") -> NewEndpoint:
    return NewEndpoint(name, Kind.WEBHOOK, URL, tenants=frozenset(tenants) or None)


async def test_an_endpoint_gets_the_events_of_its_tenants_alone(outbox: Outbox, receiver: Receiver) -> None:
    await outbox.hand_over(await outbox.add(receiver), NORTH)
    outbox.channels = replace(outbox.channels, tenant_http=outbox.channels.http)  # to reach loopback
    async with outbox.running():
        mine = await outbox.emit(3, tenant=NORTH)
        await outbox.emit(3, tenant=SOUTH)
        await outbox.emit(3)  # of the deployment
        last = await outbox.emit(1, tenant=NORTH)
        await receiver.wait_for(4)
        await asyncio.sleep(0.3)
    assert receiver.ids == [*mine, *last]


async def test_an_endpoint_of_a_tenant_reaches_no_allowed_private_network(outbox: Outbox, receiver: Receiver) -> None:
    endpoint = await outbox.add(receiver)
    await outbox.service.test(ALL, endpoint.uid, outbox.channels, ROOT)
    await outbox.hand_over(endpoint, NORTH)
    with pytest.raises(DeliveryFailed, match="endpoints of the deployment"):
        await outbox.service.test(ALL, endpoint.uid, outbox.channels, ROOT)
    assert len(receiver.seen) == 1


async def test_a_tenant_administrator_sees_and_changes_only_their_endpoints(outbox: Outbox) -> None:
    service, north = outbox.service, Scope.of(NORTH)
    own, _ = await service.add(north, webhook(NORTH), ROOT)
    others = [await service.add(ALL, webhook(*tenants), ROOT) for tenants in ((SOUTH,), (NORTH, SOUTH), ())]
    assert [each.uid for each in await service.list(north)] == [own.uid]
    assert len(await service.list(ALL)) == 4
    assert await service.list(Scope.of()) == []
    for endpoint, _ in others:
        for call in (
            service.find(north, endpoint.uid),
            service.rotate(north, endpoint.uid, ROOT),
            service.enable(north, endpoint.uid, ROOT),
            service.disable(north, endpoint.uid, ROOT),
            service.remove(north, endpoint.uid, ROOT),
            service.test(north, endpoint.uid, outbox.channels, ROOT),
        ):
            with pytest.raises(EndpointNotFound):
                await call
    await service.remove(north, own.uid, ROOT)
    assert len(await service.list(ALL)) == 3


@pytest.mark.parametrize(
    "wanted",
    [
        NewEndpoint("", Kind.WEBHOOK, URL),
        NewEndpoint("a\nb", Kind.WEBHOOK, URL),
        NewEndpoint("x" * 61, Kind.WEBHOOK, URL),
        NewEndpoint("x", Kind.WEBHOOK, "ftp://hook.example/"),
        NewEndpoint("x", Kind.SYSLOG, URL),
        NewEndpoint("x", Kind.FILE, "../abby.yml"),
        NewEndpoint("x", Kind.WEBHOOK, URL, types=frozenset({"no.such"})),
        NewEndpoint("x", Kind.WEBHOOK, URL, types=frozenset()),
        NewEndpoint("x", Kind.WEBHOOK, URL, batch_size=501),
        NewEndpoint("x", Kind.WEBHOOK, URL, batch_seconds=61),
        NewEndpoint("x", Kind.FILE, "a.log", batch_size=2),
        NewEndpoint("x", Kind.FILE, "a.log", tenants=frozenset({NORTH})),
        NewEndpoint("x", Kind.WEBHOOK, "http://hook.example/", tenants=frozenset({NORTH})),
    ],
)
async def test_a_mistake_in_an_endpoint_is_rejected(outbox: Outbox, wanted: NewEndpoint) -> None:
    with pytest.raises(SchemaViolation):
        await outbox.service.add(ALL, wanted, ROOT)


async def test_two_endpoints_cannot_write_to_one_file(outbox: Outbox) -> None:
    await outbox.service.add(ALL, NewEndpoint("one", Kind.FILE, "siem.ndjson"), ROOT)
    with pytest.raises(NameTaken, match="`one` writes to"):
        await outbox.service.add(ALL, NewEndpoint("two", Kind.FILE, "Siem.ndjson"), ROOT)
    await outbox.service.add(ALL, NewEndpoint("two", Kind.FILE, "lake.ndjson"), ROOT)


async def test_names_and_numbers_of_endpoints_are_limited_for_each_tenant(outbox: Outbox) -> None:
    for number in range(MAX_OF_TENANTS):
        await outbox.service.add(ALL, webhook(NORTH, name=f"hook {number}"), ROOT)
    with pytest.raises(SchemaViolation, match="at most"):
        await outbox.service.add(ALL, webhook(NORTH), ROOT)
    await outbox.service.add(ALL, webhook(SOUTH, name="HOOK 1"), ROOT)  # the name of another tenant's is no secret
    with pytest.raises(NameTaken):
        await outbox.service.add(ALL, webhook(SOUTH, name="hook 1"), ROOT)


async def test_the_audit_log_has_every_test_of_an_endpoint(outbox: Outbox, receiver: Receiver) -> None:
    endpoint = await outbox.add(receiver)
    await outbox.hand_over(endpoint, NORTH)
    outbox.channels = replace(outbox.channels, tenant_http=outbox.channels.http)  # to reach loopback
    await outbox.service.test(Scope.of(NORTH), endpoint.uid, outbox.channels, ROOT)
    receiver.status = 500
    with pytest.raises(DeliveryFailed):
        await outbox.service.test(Scope.of(NORTH), endpoint.uid, outbox.channels, ROOT)
    with pytest.raises(EndpointNotFound):
        await outbox.service.test(Scope.of(SOUTH), endpoint.uid, outbox.channels, ROOT)
    events = await AuditStore(outbox.database).find(ALL, AuditFilter(action="events.endpoint-test"))
    assert [(each.tenant, each.actor.name, each.subject) for each in events] == [(NORTH, ROOT.name, endpoint.name)] * 2
    assert {each.details["uid"] for each in events} == {str(endpoint.uid)}


async def test_no_secret_is_readable_in_the_database(outbox: Outbox) -> None:
    url = "https://hooks.example:8443/services/T0000/secret-part?sig=secret-part"
    endpoint, secret = await outbox.service.add(ALL, NewEndpoint("chat", Kind.WEBHOOK, url), ROOT)
    await outbox.service.remove(ALL, endpoint.uid, ROOT)
    other, _ = await outbox.service.add(ALL, NewEndpoint("chat", Kind.WEBHOOK, url + "2"), ROOT)
    async with outbox.database.connection() as connection:
        rows = await connection.fetch("SELECT * FROM event_endpoints")
        audit = await connection.fetch("SELECT details FROM audit WHERE action LIKE 'events.%' ORDER BY number")
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


async def test_the_command_manages_endpoints(
    folder: Path, database: Database, database_url: str, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    await TenantStore(database).create(ALL, "acme", ["acme.example"])

    async def run(*words: str) -> tuple[int, str]:
        where = ["--config", str(folder), "--database-url", database_url]
        code = await asyncio.to_thread(main, ["events", "endpoint", *words, *where])
        said = capsys.readouterr()
        return code, said.out or said.err

    assert (await run("add", "other", URL, "--tenant", "acme"))[0] == 0
    assert (await run("remove", "other"))[0] == 0
    code, receiver.secret = await run("add", "soar", receiver.url, "--type", "message.held")
    assert code == 0
    receiver.secret = receiver.secret.strip()
    assert receiver.secret.startswith("whsec_")
    assert (await run("test", "soar"))[0] == 0
    assert [document["type"] for document in receiver.seen] == ["endpoint.test"]
    code, receiver.secret = await run("rotate", "SOAR")
    receiver.secret = receiver.secret.strip()
    assert (await run("test", "soar"))[0] == 0
    assert (await run("disable", "soar")) == (0, "Disabled soar.\n")
    (shown,) = json.loads((await run("list", "-o", "json"))[1])
    assert (shown["state"], shown["types"], shown["lastError"]) == (
        "disabled",
        ["message.held"],
        "Disabled by an administrator.",
    )
    assert shown["target"] == receiver.url.replace("hook", "…")
    text = (await run("list"))[1]
    assert "disabled" in text
    assert "/hook" not in text
    assert (await run("enable", "soar"))[0] == 0
    receiver.status = 500
    assert (await run("test", "soar")) == (
        2,
        "mailwarden: The test event was not delivered. The receiver answered 500.\n",
    )
    assert (await run("remove", shown["uid"])) == (0, "Removed soar.\n")
    code, error = await run("remove", "soar")
    assert (code, "events endpoint list" in error) == (2, True)
    assert (await run("add", "siem", "siem.ndjson", "--kind", "file"))[1].startswith("Added siem")


async def test_a_rotated_pepper_keeps_and_renews_the_secrets(
    folder: Path, database: Database, database_url: str, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    async with open_outbox(database, folder) as outbox:
        endpoint = await outbox.add(receiver)
        await outbox.service.rotate(ALL, endpoint.uid, ROOT)
    where = ["--config", str(folder), "--database-url", database_url]
    old = PEPPER.current.name
    for words, code, part in (
        (["rotate", "pepper"], 0, ""),
        (["drop", "pepper", old], 2, "3 secrets of webhooks"),
        (["reseal", "pepper"], 0, "secrets of webhooks"),
        (["drop", "pepper", old], 0, "dropped"),
    ):
        assert await asyncio.to_thread(main, ["secrets", *words, *where]) == code
        said = capsys.readouterr()
        assert part in said.out + said.err
    assert await asyncio.to_thread(main, ["events", "endpoint", "test", str(endpoint.uid), *where]) == 0


async def test_disabled_and_failing_endpoints_are_reported(
    outbox: Outbox, receiver: Receiver, folder: Path, database_url: str
) -> None:
    """By `mailwarden doctor`, and by the metric of the alert; an endpoint that an administrator disabled is not."""
    config = read(folder / PATH, AbbyConfig)
    abby = msgspec.structs.replace(config, database=msgspec.structs.replace(config.database, url=database_url))
    names = ("gone", "failing", "paused", "well")
    endpoints = {
        name: (await outbox.service.add(ALL, NewEndpoint(name, Kind.WEBHOOK, receiver.url), ROOT))[0] for name in names
    }
    delivery = Delivery(outbox.store, outbox.reader, outbox.channels, metrics := Metrics())
    await outbox.store.lease(ALL, delivery.process, 100)
    now = datetime.now(UTC)
    uid = endpoints["failing"].uid
    await outbox.store.fail(ALL, uid, delivery.process, now=now, next_attempt=now, error="The receiver answered 500.")
    await outbox.store.disable(ALL, endpoints["gone"].uid, "The receiver answered 410 Gone.", ROOT)
    await outbox.service.disable(ALL, endpoints["paused"].uid, ROOT)
    lines = {line.name: line async for line in check_event_endpoints(Host(folder, None, abby))}
    seen = {name: (lines[f"event endpoint {name}"].warning, lines[f"event endpoint {name}"].seen) for name in names}
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
    assert "mailwarden_event_endpoints_disabled 1.0" in page
    assert f'mailwarden_event_endpoint_failing{{endpoint="failing",uid="{uid}"}} 1.0' in page
    assert f'mailwarden_event_endpoint_failing{{endpoint="well",uid="{endpoints["well"].uid}"}} 0.0' in page
