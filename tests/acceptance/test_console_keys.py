"""API keys in the console: shown once, bound, rotated with an overlap, revoked, and kept apart between tenants."""

import html
import json
import re
import shlex
import subprocess

import pytest

from tests.acceptance.client import Answer
from tests.acceptance.console_client import Person, invite, text_of
from tests.acceptance.deployment import Deployment
from tests.waiting import wait_until

KEY = re.compile(r'id="key-text"[^>]*>(mwk_[0-9a-z]{12}_[0-9A-Za-z]{60})<')


@pytest.fixture(scope="module")
def root(deployment: Deployment) -> Person:
    return invite(deployment, "keys-root", "deployment-administrator")


@pytest.fixture(scope="module")
def acme(deployment: Deployment) -> Person:
    return invite(deployment, "keys-acme", "tenant-administrator", "acme")


@pytest.fixture(scope="module")
def club(deployment: Deployment) -> Person:
    return invite(deployment, "keys-club", "tenant-administrator", "club")


def make(person: Person, **fields: object) -> Answer:
    given = {"name": "soar", "scopes": ["lists:read", "lists:write"], "bound": "global", "lifetime": "30", **fields}
    return person.post("/console/keys/new", **given)


def key_in(page: Answer) -> str:
    found = KEY.search(page.body.decode())
    assert found is not None, page.body.decode()
    return found[1]


def id_of(key: str) -> str:
    return key.split("_")[1]


def is_good(deployment: Deployment, key: str, tenant: str | None = None) -> bool:
    caller = deployment.lists("all", tenant).using(key)
    return caller.available().status == 200


def test_a_key_is_shown_once_and_works(deployment: Deployment, root: Person) -> None:
    answer = make(root, name="once")
    assert "mwk_" not in answer.headers["Location"]
    page = root.follow(answer)
    key = key_in(page)
    assert is_good(deployment, key)
    for path in ("/console/keys/made", "/console/keys"):
        assert key.rpartition("_")[2] not in root.get(path).body.decode()
    assert id_of(key) in text_of(root.get("/console/keys"))


def test_the_curl_is_ready_to_paste(deployment: Deployment, root: Person) -> None:
    page = root.follow(make(root, name="curl", bound=deployment.tenants["acme"])).body.decode()
    curl = html.unescape(re.search(r'id="key-curl"[^>]*>([^<]*)<', page)[1])  # type: ignore[index]
    words = shlex.split(curl.replace("\\\n", " "))
    assert words[0] == "curl"
    url = words[-1]
    headers = dict(words[at + 1].split(": ", 1) for at, word in enumerate(words) if word == "-H")
    answer = (
        deployment.client()
        .using(None)
        .call(
            "POST",
            url.removeprefix(deployment.product.url),
            headers=headers,
            data=words[words.index("-d") + 1].encode(),
        )
    )
    assert url.startswith(deployment.product.url)
    assert answer.status == 200, answer.body


def test_the_form_offers_every_scope_and_preselects_none(root: Person) -> None:
    page = root.get("/console/keys/new").body.decode()
    offered = re.findall(r'name="scopes" value="([^"]+)"( checked)?', page)
    assert [scope for scope, _ in offered] == [
        *("messages:submit", "messages:read", "reports:write", "quarantine:read", "quarantine:manage"),
        *("lists:read", "lists:write", "status:read", "events:read"),
    ]
    assert not any(checked for _, checked in offered)
    assert '<option value="" selected>' in page, "no tenant is preselected"
    assert make(root, bound="").status == 400


def test_a_key_waits_for_its_first_request_and_names_it(deployment: Deployment, root: Person, club: Person) -> None:
    page = root.follow(make(root, name="waiting", bound=deployment.tenants["acme"]))
    key, path = key_in(page), f"/console/keys/{id_of(key_in(page))}"
    for shown in (page, root.get(path), root.get("/console/keys")):
        assert "waiting for the first request" in text_of(shown)
    assert f'hx-get="{path}/first"' in page.body.decode()
    assert root.get(f"{path}/first").status == 204, "the page stays as it is"
    assert is_good(deployment, key, "acme")
    found = text_of(root.get(f"{path}/first"))
    assert re.search(r"First request: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC from 127\.0\.0\.1", found), found
    assert "hx-get" not in root.get(f"{path}/first").body.decode(), "nothing is polled any more"
    assert "First request" in text_of(root.get(path))
    assert key.rpartition("_")[2] not in root.get(path).body.decode()
    for foreign in (path, f"{path}/first"):
        assert club.get(foreign).status == 404


def test_the_curl_of_a_scanning_key_submits_a_sample(deployment: Deployment, root: Person) -> None:
    made = root.follow(make(root, name="scan", scopes=["messages:submit"], bound=deployment.tenants["acme"]))
    command = html.unescape(re.search(r'id="key-curl"[^>]*>([^<]*)<', made.body.decode())[1])  # type: ignore[index]
    done = subprocess.run(
        ["bash", "-c", command.replace("curl ", f"curl -s --noproxy '*' --cacert {deployment.product.ca} ", 1)],
        check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert json.loads(done.stdout)["verdict"] == "clean", done.stdout


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"scopes": []},
        {"scopes": ["lists:everything"]},
        {"bound": "nowhere"},
        {"lifetime": "99999"},
        {"networks": "192.0.2.1/24"},
        {"networks": "anywhere"},
    ],
)
def test_an_invalid_form_is_shown_again_with_its_errors(root: Person, wrong: dict[str, object]) -> None:
    answer = make(root, **wrong)
    assert answer.status == 400
    assert 'role="alert"' in answer.body.decode()


def test_a_rotated_key_stays_good_for_the_overlap(deployment: Deployment, root: Person) -> None:
    old = key_in(root.follow(make(root, name="turning")))
    new = key_in(root.follow(root.post(f"/console/keys/{id_of(old)}/rotate", overlap="1")))
    assert is_good(deployment, old)
    assert is_good(deployment, new)
    newest = key_in(root.follow(root.post(f"/console/keys/{id_of(new)}/rotate", overlap="0")))
    assert wait_until(lambda: not is_good(deployment, new))
    assert is_good(deployment, newest)
    assert "replaced by" in text_of(root.get("/console/keys"))


def test_a_revoked_key_is_refused_within_five_seconds(deployment: Deployment, root: Person) -> None:
    key = key_in(root.follow(make(root, name="ending")))
    assert is_good(deployment, key)
    assert "cannot be undone" in text_of(root.get(f"/console/keys/{id_of(key)}/revoke"))
    assert root.post(f"/console/keys/{id_of(key)}/revoke").headers["Location"].endswith("done=key-revoked")
    assert wait_until(lambda: not is_good(deployment, key), 5.0)
    assert root.post(f"/console/keys/{id_of(key)}/revoke").status == 404


def test_a_tenant_administrator_has_the_keys_of_their_tenant_alone(
    deployment: Deployment, root: Person, acme: Person, club: Person
) -> None:
    own = key_in(acme.follow(make(acme, name="acme-own", bound=deployment.tenants["acme"])))
    assert is_good(deployment, own, "acme")
    assert not is_good(deployment, own, "club")
    for beyond in ("global", deployment.tenants["club"]):
        assert make(acme, bound=beyond).status == 400
    foreign = [
        id_of(key_in(root.follow(make(root, name="everywhere")))),
        id_of(key_in(club.follow(make(club, name="club-own", bound=deployment.tenants["club"])))),
    ]
    page = text_of(acme.get("/console/keys"))
    assert "acme-own" in page
    assert "everywhere" not in page
    assert "club-own" not in page
    for key in foreign:
        for action in ("rotate", "revoke"):
            assert acme.get(f"/console/keys/{key}/{action}").status == 404
            assert acme.post(f"/console/keys/{key}/{action}", overlap="1").status == 404


def test_static_tokens_are_listed_by_name_for_the_deployment_alone(
    deployment: Deployment, root: Person, acme: Person
) -> None:
    page = root.get("/console/keys").body.decode()
    assert "watcher" in page
    assert not any(token in page for token in deployment.tokens.values())
    assert "Static tokens" not in text_of(acme.get("/console/keys"))
