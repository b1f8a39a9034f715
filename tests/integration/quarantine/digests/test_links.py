"""A link of a digest releases one message to one recipient, once; every other link leads nowhere."""

import asyncio

import pytest

from mailwarden.access.audit import AuditStore
from mailwarden.access.rate_limits import RateLimiter
from mailwarden.errors import RateLimited
from mailwarden.model.outcome import Verdict
from mailwarden.model.scope import Actor, Scope
from mailwarden.policy.rules import load_policy
from mailwarden.quarantine.digest_links import DigestLinkService
from mailwarden.quarantine.model import State
from mailwarden.quarantine.store import NOT_WHOLE
from tests.integration.quarantine.digests.digest_setup import (
    ANN,
    SEAL,
    STRANGER,
    DigestSetup,
    link_to,
)


async def test_a_link_releases_once_under_concurrent_calls(setup: DigestSetup):
    uid = await setup.keep()
    token = link_to(uid)
    await asyncio.gather(*(setup.link_service.find(token, STRANGER) for _ in range(8)))  # every connection is open
    answers = await asyncio.gather(*(setup.link_service.release(token, STRANGER) for _ in range(8)))
    assert sorted(each.state for each in answers if each) == ["held"] + ["releasing"] * 7
    await setup.releasing.look()
    again = await setup.link_service.release(token, STRANGER)
    assert again is not None
    assert again.state is State.RELEASED
    assert await setup.states(uid) == ["released"]
    deeds = [
        (deed.actor.name, deed.action, deed.actor.address, deed.details["recipients"])
        for deed in await AuditStore(setup.database).find(Scope.of(setup.north))
        if deed.action.startswith("quarantine.")
    ]
    assert deeds[::-1] == [
        (f"digest:{ANN}", "quarantine.release", "192.0.2.1", [ANN]),
        (f"digest:{ANN}", "quarantine.released", None, [ANN]),
    ]


async def test_a_message_named_twice_is_released_for_both_spellings(setup: DigestSetup):
    uid = await setup.keep(ANN, ANN.upper())
    assert await setup.link_service.release(link_to(uid), STRANGER)
    assert await setup.states(uid) == ["releasing", "releasing"]


async def test_a_link_to_a_message_without_release_right_is_not_found(setup: DigestSetup):
    for verdict in Verdict:
        uid = await setup.keep(verdict=verdict)
        allowed = verdict in (Verdict.SPAM, Verdict.SUSPICIOUS)
        assert (await setup.link_service.find(link_to(uid), STRANGER) is not None) is allowed, verdict
        assert (await setup.link_service.release(link_to(uid), STRANGER) is not None) is allowed, verdict
        assert await setup.states(uid) == (["releasing"] if allowed else ["held"])


@pytest.mark.parametrize("tag", sorted(NOT_WHOLE))
async def test_recipients_cannot_release_incompletely_analyzed_messages(setup: DigestSetup, tag: str):
    assert tag in load_policy().tags
    uid = await setup.keep(tag=tag)
    assert await setup.link_service.find(link_to(uid), STRANGER) is None
    assert await setup.link_service.release(link_to(uid), STRANGER) is None
    assert await setup.states(uid) == ["held"]


async def test_a_frequent_caller_must_wait_and_others_need_not(setup: DigestSetup):
    links = DigestLinkService(SEAL, setup.digest_store, RateLimiter(3))
    for _ in range(3):
        await links.find("x", STRANGER)
    with pytest.raises(RateLimited):
        await links.find("x", STRANGER)
    assert await links.find("x", Actor("digest", "198.51.100.7")) is None
