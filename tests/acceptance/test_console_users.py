"""Users in the console: invited, moved, disabled and enabled, within the tenants of the administrator."""

import re
import time
from collections.abc import Iterator

import pytest

from tests.acceptance.client import Answer
from tests.acceptance.console_client import Person, invite, make_link, text_of
from tests.acceptance.deployment import Deployment, DeploymentTemplate, run_deployment
from workshop.rig.engines import Engines

LINK = re.compile(r'id="setup-link"[^>]*>https://[^/]+(/console/setup/[A-Za-z0-9_-]{88})<')


@pytest.fixture(scope="module")
def root(deployment: Deployment) -> Person:
    return invite(deployment, "people-root", "deployment-administrator")


@pytest.fixture(scope="module")
def acme(deployment: Deployment) -> Person:
    return invite(deployment, "people-acme", "tenant-administrator", "acme")


@pytest.fixture(scope="module")
def hasty(
    engines: Engines, deployment_template: DeploymentTemplate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """A deployment that nobody has used yet, whose sessions end within seconds."""
    console = {"console": {"sessionIdle": 3, "sessionAbsolute": 8}}
    folder = tmp_path_factory.mktemp("hasty")
    with run_deployment(engines, deployment_template, folder, abby=console, start=False, one_process=False) as opened:
        opened.product.abby.start()  # nothing is scanned here
        yield opened


def link_in(page: Answer) -> str:
    found = LINK.search(page.body.decode())
    assert found is not None, page.body.decode()
    return found[1]


def uid_of(person: Person, name: str) -> str:
    found = re.search(rf'/console/users/([0-9a-f-]{{36}})">{name}<', person.get("/console/users").body.decode())
    assert found is not None
    return found[1]


def test_the_first_link_is_good_once_and_sessions_end_by_themselves(hasty: Deployment) -> None:
    assert "No users yet" in text_of(Person(hasty.client().using(None)).get("/console/login"))
    link = make_link(hasty, "setup-link")
    spare = Person(hasty.client().using(None))
    spare.follow(spare.get("/console/setup/" + link.rpartition("/")[2]))
    first = Person(hasty.client().using(None))
    first.set_up(link, "first")
    assert first.get("/console/users").status == 200
    assert Person(hasty.client().using(None)).get("/console/setup/" + link.rpartition("/")[2]).status == 410
    assert spare.get("/console/setup").status == 410
    assert "No users yet" not in text_of(Person(hasty.client().using(None)).get("/console/login"))
    # As long as requests come the session lives, but no longer than it may in all.
    ended = time.monotonic() + 8
    while first.get("/console/users").status == 200:
        assert time.monotonic() < ended + 10
        time.sleep(0.5)
    assert time.monotonic() > ended - 3
    assert first.log_in().status == 303
    time.sleep(3.5)  # longer than sessionIdle
    assert first.get("/console/users").status == 303


def test_an_invited_person_has_the_role_and_the_tenants_they_were_given(deployment: Deployment, root: Person) -> None:
    page = root.follow(
        root.post(
            "/console/users/new", role="analyst", tenants=[deployment.tenants["acme"]], email="eve@company.example"
        )
    )
    link = link_in(page)
    assert link not in root.get("/console/users/link").body.decode()
    assert "eve@company.example" in text_of(root.get("/console/users"))
    eve = Person(deployment.client().using(None))
    eve.set_up(link, "eve")
    listed = text_of(root.get("/console/users"))
    assert "eve" in listed
    assert eve.get("/console/users").status == 403
    person = text_of(root.get(f"/console/users/{uid_of(root, 'eve')}"))
    assert "acme" in person


def test_an_invitation_names_role_and_tenants_explicitly(deployment: Deployment, root: Person, acme: Person) -> None:
    own = [deployment.tenants["acme"]]
    for person in (root, acme):
        page = person.get("/console/users/new").body.decode()
        assert not re.search(r'name="(role|reach|tenants)"[^>]*checked', page), "nothing is preselected"
    for person, fields in (
        (root, {"role": "analyst"}),
        (root, {"reach": "all"}),
        (root, {"role": "analyst", "reach": "chosen"}),
        (root, {"role": "analyst", "reach": "all", "tenants": own}),
        (root, {"role": "deployment-administrator"}),
        (root, {"role": "deployment-administrator", "reach": "chosen", "tenants": own}),
        (acme, {"role": "analyst"}),
        (acme, {"tenants": own}),
    ):
        answer = person.post("/console/users/new", **fields)
        assert answer.status == 400, fields
        assert 'role="alert"' in answer.body.decode()
    assert link_in(root.follow(root.post("/console/users/new", role="auditor", reach="all")))


def test_a_role_that_was_changed_holds_at_once(deployment: Deployment, root: Person) -> None:
    person = invite(deployment, "climber", "analyst")
    assert person.get("/console/users").status == 403
    uid = uid_of(root, "climber")
    assert root.post(f"/console/users/{uid}/role", role="auditor", reach="all").status == 303
    assert person.get("/console/users").status == 303, "a session of before the change has ended"
    assert person.log_in().status == 303
    assert person.get("/console/users").status == 200
    assert root.post(f"/console/users/{uid}/disable").status == 303
    assert person.get("/console/users").status == 303
    assert root.post(f"/console/users/{uid}/enable").status == 303
    assert person.log_in().status == 303
    again = root.follow(root.post(f"/console/users/{uid}/link"))
    person.password = "another battery staple"
    person.set_up(link_in(again), "climber")
    assert person.get("/console/users").status == 200


def test_a_tenant_administrator_sees_and_touches_their_own_people_alone(
    deployment: Deployment, root: Person, acme: Person
) -> None:
    invite(deployment, "of-club", "analyst", "club")
    invite(deployment, "of-both", "analyst", "acme", "club")
    invite(deployment, "of-acme", "analyst", "acme")
    page = text_of(acme.get("/console/users"))
    assert "of-acme" in page
    assert "of-club" not in page
    assert "of-both" not in page
    assert "people-root" not in page
    for name in ("of-club", "of-both", "people-root"):
        uid = uid_of(root, name)
        assert acme.get(f"/console/users/{uid}").status == 404
        for action in ("role", "link", "disable", "enable"):
            answer = acme.post(f"/console/users/{uid}/{action}", role="analyst", tenants=[deployment.tenants["acme"]])
            assert answer.status == 404, (name, action)
    for fields in (
        {"role": "deployment-administrator", "reach": "all"},
        {"role": "analyst", "reach": "all"},
        {"role": "analyst", "tenants": [deployment.tenants["club"]]},
        {"role": "analyst", "tenants": [deployment.tenants["acme"], deployment.tenants["club"]]},
    ):
        assert acme.post("/console/users/new", **fields).status == 403, fields
        assert acme.post(f"/console/users/{uid_of(acme, 'of-acme')}/role", **fields).status == 403, fields
    done = acme.post("/console/users/new", role="tenant-administrator", tenants=[deployment.tenants["acme"]])
    assert link_in(acme.follow(done))


def test_a_link_can_be_withdrawn(deployment: Deployment, root: Person, acme: Person) -> None:
    link = link_in(
        root.follow(root.post("/console/users/new", role="auditor", reach="all", email="gone@company.example"))
    )
    page = root.get("/console/users").body.decode()
    (uid,) = re.findall(r"gone@company\.example.*?links/([0-9a-f-]{36})/withdraw", page, re.DOTALL)[:1]
    assert acme.post(f"/console/users/links/{uid}/withdraw").status == 404
    assert root.post(f"/console/users/links/{uid}/withdraw").status == 303
    assert Person(deployment.client().using(None)).get(link).status == 410


def test_tenants_may_be_typed_where_they_are_too_many_to_choose(
    deployment: Deployment, root: Person, acme: Person
) -> None:
    done = root.post("/console/users/new", role="analyst", tenant_names=f"ACME\n{deployment.tenants['club']}\n")
    assert link_in(root.follow(done))
    assert "acme, club" in text_of(root.get("/console/users"))
    for unknown in ("nowhere", "club"):
        answer = acme.post("/console/users/new", role="analyst", tenant_names=unknown)
        assert answer.status == 400
        assert f"There is no tenant `{unknown}`" in text_of(answer)
