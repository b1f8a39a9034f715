"""Signing in by the organisation's own login with a provider over TLS."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from urllib.parse import urlencode, urlsplit

import pytest

from tests.acceptance.console_client import Person, text_of
from tests.acceptance.deployment import Deployment, DeploymentTemplate, run_deployment
from tests.samples.openid import CLIENT, SECRET, SmallProvider
from workshop.rig.engines import Engines

CALLBACK = "/console/login/openid/callback?"


@pytest.fixture(scope="module")
def federated(
    engines: Engines, deployment_template: DeploymentTemplate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Deployment, SmallProvider]]:
    """Return a product whose people an organisation vouches for, and the provider that does."""
    place = tmp_path_factory.mktemp("federated")
    with run_deployment(engines, deployment_template, place, start=False, one_process=False) as deployment:
        folder = deployment.product.abby.folder
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(folder / "tls" / "abby.crt", folder / "tls" / "abby.key")
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        provider = asyncio.run_coroutine_threadsafe(SmallProvider().start(tls), loop).result(10)
        (folder / "secrets" / "openid").write_text(SECRET + "\n")
        openid = {
            "issuer": provider.issuer,
            "clientId": CLIENT,
            "clientSecretFile": "secrets/openid",
            "roles": {"soc": "analyst", "audit": "auditor"},
            "title": "Log in with Example Ltd",
            "ca": "tls/ca.crt",
        }
        deployment.product.abby.configure({"console": {"publicUrl": deployment.product.url, "openIdConnect": openid}})
        deployment.product.abby.start()  # nothing is scanned here
        yield deployment, provider
        deployment.product.abby.stop()  # so that nothing holds a connection open
        asyncio.run_coroutine_threadsafe(end(provider), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def end(provider: SmallProvider) -> None:
    await provider.stop()
    await asyncio.sleep(0.5)  # until the last connections have said goodbye


def leave(person: Person, provider: SmallProvider, wanted: str = "") -> dict[str, str]:
    person.get(f"/console/login{wanted}")
    answer = person.get("/console/login/openid")
    assert answer.status == 303
    address = answer.headers["Location"]
    assert address.startswith(provider.issuer + "/authorize?")
    return provider.authorize(address)


def test_a_user_of_the_organisation_is_logged_in(federated: tuple[Deployment, SmallProvider]) -> None:
    deployment, provider = federated
    provider.claims = {"sub": "1", "preferred_username": "eve", "roles": ["audit"]}
    person = Person(deployment.client().using(None))
    assert "Log in with Example Ltd" in text_of(person.get("/console/login"))
    back = leave(person, provider, "?next=/console/users")
    before = person.cookie
    answer = person.get(CALLBACK + urlencode(back))
    assert (answer.status, answer.headers["Location"]) == (303, "/console/users")
    assert person.cookie != before
    assert "organisation login" in text_of(person.get("/console/users"))
    page = text_of(person.get("/console/account"))
    assert "eve" in page
    assert "Current password" not in page


def test_an_unrequested_answer_is_rejected(federated: tuple[Deployment, SmallProvider]) -> None:
    deployment, provider = federated
    provider.claims = {"sub": "2", "roles": ["soc"]}
    victim, thief = Person(deployment.client().using(None)), Person(deployment.client().using(None))
    stolen = leave(thief, provider)
    # A link with somebody else's answer, which would sign the victim in as the thief.
    victim.get("/console/login")
    answer = victim.get(CALLBACK + urlencode(stolen))
    assert answer.status == 401
    assert "did not vouch for you" in text_of(answer)
    assert victim.get("/console/account").status == 303
    assert Person(deployment.client().using(None)).get(CALLBACK + urlencode(stolen)).status == 303
    other = Person(deployment.client().using(None))
    back = leave(other, provider)
    assert other.get(CALLBACK + urlencode({**back, "state": "x"})).status == 401
    assert other.get(CALLBACK + urlencode(back)).status == 303, "a made-up state spends nothing"
    good = leave(victim, provider)
    assert victim.get(CALLBACK + urlencode(good)).status == 303
    assert Person(victim.client, cookie=None).get(CALLBACK + urlencode(good)).status == 303
    assert victim.get("/console/account").status == 200


def test_without_a_provider_there_is_no_button_and_no_way(deployment: Deployment) -> None:
    person = Person(deployment.client().using(None))
    assert "/login/openid" not in person.get("/console/login").body.decode()
    assert person.get("/console/login/openid").status == 404
    assert urlsplit(person.get("/console/account").headers["Location"]).path == "/console/login"
