"""A feed of domain reputation, served by a real name server: listings are found, and a failure says nothing."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailwarden.analysis.analyzer import EngineFailed, Known
from mailwarden.engines.reputation import MAX_DOMAINS, ReputationEngine, ReputationSettings, domains_of
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Report, Status
from mailwarden.model.record import LinkSummary, MessageSummary
from workshop.rig.dns import Dns, record_line

ZONE = "feed.example"
LISTINGS = {
    "test": "127.0.1.2",
    "stolen.example": "127.0.1.4",
    "young.example": "127.0.2.7",
    "odd.example": "127.0.9.9",
    "refused.example": "127.255.255.254",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("dns")
    served = Dns(folder, [record_line(f"{name}.{ZONE}", "A", address) for name, address in LISTINGS.items()])
    served.start()
    yield f"127.0.0.1:{served.port}"
    served.stop()


def engine(server: str, timeout: int = 20_000) -> ReputationEngine:
    return ReputationEngine("reputation", ReputationSettings(ZONE, (server,), timeout))


def known(sender: str = "ada@north.example", *hosts: str) -> Known:
    links = tuple(LinkSummary("here", f"https://{host}/", host) for host in hosts)
    return Known(Envelope(sender, ("bob@south.example",)), MessageSummary(1, "", from_address=sender, links=links), {})


async def ask(server: str, asked: Known, timeout: int = 20_000) -> Report:
    return await engine(server, timeout).confirm(asked, time.monotonic() + 30)


async def test_listed_domains_of_sender_and_links_are_found(server: str):
    report = await ask(server, known("x@mail.young.example", "www.stolen.example", "quiet.example", "odd.example"))
    assert (report.status, report.required) == (Status.FINISHED, False)
    assert {(each.name, each.facts["domain"]) for each in report.findings} == {
        ("reputation.new", "young.example"),
        ("reputation.phishing", "stolen.example"),
    }


@pytest.mark.parametrize("asked", [known("x@refused.example"), known("x@quiet.example", "refused.example")])
async def test_a_feed_that_refuses_says_nothing(server: str, asked: Known):
    report = await ask(server, asked)
    assert (report.status, report.findings) == (Status.FAILED, ())
    assert report.failure is not None
    assert "refuses" in report.failure.sentence


async def test_a_listing_counts_beside_names_that_the_feed_refuses(server: str):
    report = await ask(server, known("x@stolen.example", "refused.example"))
    assert (report.status, [each.name for each in report.findings]) == (Status.FAILED, ["reputation.phishing"])


async def test_a_listing_counts_beside_names_that_answer_late(server: str, monkeypatch: pytest.MonkeyPatch):
    asked = engine(server, timeout=500)
    answer = asked._addresses_of

    async def some_late(domain: str) -> tuple[str, ...]:
        if domain.startswith("late"):
            await asyncio.sleep(60)
        return await answer(domain)

    monkeypatch.setattr(asked, "_addresses_of", some_late)
    report = await asked.confirm(known("x@late1.example", "late2.example", "stolen.example"), time.monotonic() + 30)
    assert (report.status, [each.name for each in report.findings]) == (Status.FAILED, ["reputation.phishing"])


async def test_a_feed_that_does_not_answer_says_nothing():
    began = time.monotonic()
    report = await ask("127.0.0.1:1", known("x@stolen.example"), timeout=300)
    assert (report.status, report.findings) == (Status.FAILED, ())
    assert time.monotonic() - began < 10


async def test_the_check_asks_for_the_test_entry(server: str):
    assert (await engine(server).check()).version == ZONE
    with pytest.raises(EngineFailed):
        await ReputationEngine("reputation", ReputationSettings("empty.example", (server,), 20_000)).check()


def test_the_most_used_domains_and_free_mailboxes_are_not_asked_about():
    asked = known("x@gmail.com", "www.wikipedia.org", "a.quiet.example", "b.quiet.example")
    assert list(domains_of(asked)) == ["quiet.example"]
    many = known("x@north.example", *(f"host{number}.example" for number in range(100)))
    assert len(domains_of(many)) == MAX_DOMAINS


def test_a_zone_is_needed():
    assert [key for key, _ in ReputationSettings().mistakes()] == ["zone"]
    assert [key for key, _ in ReputationSettings("feed.example", ("nowhere",)).mistakes()] == ["servers"]
