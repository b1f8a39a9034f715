"""Name lookups: threads of their own, one for each name, and a deadline."""

import asyncio
import socket
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from mailwarden.crypto.keyring import KeyRing
from mailwarden.crypto.seal import Seal
from mailwarden.event_delivery import name_lookup
from mailwarden.event_delivery.addresses import AddressRules
from mailwarden.event_delivery.http_client import DeliveryFailed, client_trust, open_http_client
from mailwarden.event_delivery.model import PURPOSE, Format, Kind, Receiver, State, url_context
from mailwarden.event_delivery.name_lookup import LookupFailed, NameLookup
from mailwarden.event_delivery.opening import open_channels
from mailwarden.event_delivery.signatures import new_secret
from mailwarden.events.catalogue import Event

PEPPER = KeyRing.of(b"p" * 32)


class SlowSystem:
    """A resolver that answers for `slow.example` only after `go_on` is set."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go_on = threading.Event()

    def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        if host == "slow.example":
            self.go_on.wait(10)
        return ["192.0.2.1"]


@pytest.fixture
def system() -> Iterator[SlowSystem]:
    made = SlowSystem()
    yield made
    made.go_on.set()


async def test_a_slow_name_holds_one_thread_and_delays_no_other(system: SlowSystem) -> None:
    lookup = NameLookup(system)
    lanes = [asyncio.create_task(lookup("slow.example")) for _ in range(8)]
    assert await lookup("fast.example") == ["192.0.2.1"]
    lanes.pop().cancel()  # the others still get the answer
    assert sorted(system.asked) == ["fast.example", "slow.example"]
    system.go_on.set()
    assert await asyncio.gather(*lanes) == [["192.0.2.1"]] * 7
    await lookup("slow.example")  # an answer is not kept
    assert sorted(system.asked) == ["fast.example", "slow.example", "slow.example"]


def receiver_of(kind: Kind, url: str) -> Receiver:
    uid = uuid4()
    seal = Seal(PEPPER, PURPOSE)
    secret = seal.close(new_secret().encode(), uid.bytes)
    sealed_url = seal.close(url.encode(), url_context(uid)) if kind is Kind.WEBHOOK else None
    rest = (None, None, 1, 0, datetime.now(UTC), "user:root", State.ENABLED, "")
    return Receiver(uid, "a", kind, Format.NATIVE, url, *rest, sealed_url=sealed_url, secret=secret)


@pytest.mark.parametrize(("kind", "url"), [(Kind.WEBHOOK, "https://a.example/"), (Kind.SYSLOG, "tls://a.example")])
async def test_deliveries_never_use_the_threads_of_asyncio(
    kind: Kind, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answer)
    monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", None)
    async with open_channels(AddressRules(), None, tmp_path, PEPPER) as channels:
        sender = channels.sender_of(receiver_of(kind, url))
        with pytest.raises(DeliveryFailed, match="resolves to an address that deliveries must not reach"):
            await sender.send([Event(uuid4(), "key.revoked", datetime.now(UTC), None, "a", {})])
        await sender.close()


@pytest.mark.parametrize(("kind", "url"), [(Kind.WEBHOOK, "https://a.example/"), (Kind.SYSLOG, "tls://a.example")])
async def test_an_error_does_not_tell_whether_an_internal_name_exists(
    kind: Kind, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(*addresses: str) -> Sequence[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in addresses]

    def absent(*_: object, **__: object) -> Sequence[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async with open_channels(AddressRules(), None, tmp_path, PEPPER) as channels:
        sentences = set()
        for system in (
            absent,
            lambda *_, **__: answer(),
            lambda *_, **__: answer("10.0.0.1"),
            lambda *_, **__: answer("127.0.0.1"),
            lambda *_, **__: answer("192.0.2.1", "10.0.0.1"),
        ):
            monkeypatch.setattr(socket, "getaddrinfo", system)
            sender = channels.sender_of(receiver_of(kind, url))
            with pytest.raises(DeliveryFailed) as failed:
                await sender.send([Event(uuid4(), "key.revoked", datetime.now(UTC), None, "a", {})])
            await sender.close()
            sentences.add(failed.value.sentence)
    assert len(sentences) == 1
    assert "does not resolve, or resolves to an address" in sentences.pop()


async def test_a_webhook_waits_for_a_name_up_to_the_deadline(
    system: SlowSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_lookup, "DEADLINE", 0.05)
    async with open_http_client(AddressRules(), client_trust(None), NameLookup(system)) as http:
        for _ in range(3):
            with pytest.raises(DeliveryFailed, match="its name did not resolve within"):
                await http.post("https://slow.example/", {}, b"{}")
    assert system.asked == ["slow.example"]  # later attempts wait for the lookup that runs


async def test_the_number_of_lookups_is_limited(system: SlowSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_lookup, "MAX_LOOKUPS", 1)
    lookup = NameLookup(system)
    first = asyncio.create_task(lookup("slow.example"))
    await asyncio.sleep(0)
    with pytest.raises(LookupFailed, match="other names"):
        await lookup("fast.example")
    system.go_on.set()
    await first
    assert await lookup("fast.example") == ["192.0.2.1"]
