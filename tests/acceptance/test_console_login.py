"""Setting up, signing in and out."""

import dataclasses
import re
from collections.abc import Iterator

import pytest

from tests.acceptance.console_client import COOKIE, Person, invite, make_link, text_of
from tests.acceptance.deployment import Deployment
from workshop.rig.engines import Engines


@pytest.fixture(scope="module")
def ada(deployment: Deployment) -> Person:
    return invite(deployment, "ada", "deployment-administrator")


@pytest.fixture(autouse=True)
def forgiven(engines: Engines, deployment: Deployment) -> Iterator[None]:
    """Have the wrong attempts of each test forgotten: all tests come from one address."""
    yield
    engines.postgresql.execute("DELETE FROM login_attempts", deployment.database)


def test_an_invited_person_sets_themselves_up_and_is_in(deployment: Deployment) -> None:
    person = Person(deployment.client().using(None))
    page = person.set_up(make_link(deployment, "invite", "--role", "auditor"), "grace")
    assert page.status == 200
    assert len(person.codes) == 10
    assert "grace" in text_of(person.get("/console/account"))
    # The codes are shown once.
    assert person.codes[0] not in text_of(person.get("/console/account/codes"))


def test_a_password_and_a_code_let_a_person_in(deployment: Deployment, ada: Person) -> None:
    ada.post("/console/logout")
    assert ada.get("/console/account").headers["Location"].startswith("/console/login?next=")
    done = ada.log_in()
    assert (done.status, done.headers["Location"]) == (303, "/console/")
    assert ada.get("/console/account").status == 200


def test_a_login_leads_back_to_the_page_that_was_wanted(deployment: Deployment, ada: Person) -> None:
    ada.post("/console/logout")
    ada.follow(ada.get("/console/account?x=1"))
    assert ada.log_in().headers["Location"] == "/console/account?x=1"


def test_the_cookie_is_for_this_host_alone_and_no_script_reads_it(deployment: Deployment) -> None:
    given = Person(deployment.client().using(None)).get("/console/login").headers["Set-Cookie"]
    value, *attributes = given.split("; ")
    assert re.fullmatch(COOKIE + r"=v\.[A-Za-z0-9_-]+", value)
    assert sorted(attributes) == ["HttpOnly", "Path=/", "SameSite=Lax", "Secure"]


def test_every_step_of_a_login_gives_another_session(deployment: Deployment, ada: Person) -> None:
    ada.post("/console/logout")
    ada.cookie = None
    before, token = ada.token("/console/login"), ada.cookie
    visit = ada.cookie
    assert ada.give_password(ada.password).status == 303
    waiting = ada.cookie
    ada.post("/console/login/code", ada.token("/console/login/code"), code=ada.code())
    signed_in = ada.cookie
    assert len({visit, waiting, signed_in, None}) == 4
    assert token == visit
    after = ada.token()
    assert before != after
    # Whoever planted the first or the second is not in.
    for planted in (visit, waiting):
        thief = Person(deployment.client().using(None), cookie=planted)
        assert thief.get("/console/account").status == 303


def test_a_chosen_cookie_is_never_accepted(deployment: Deployment) -> None:
    person = Person(deployment.client().using(None), cookie="A" * 43)
    person.get("/console/login")
    assert person.cookie != "A" * 43


def test_a_wrong_password_and_an_unknown_name_read_the_same(deployment: Deployment, ada: Person) -> None:
    pages = []
    for name in ("ada", "nobody-of-that-name"):
        anonymous = Person(deployment.client().using(None))
        answer = anonymous.give_password("wrong horse battery", name)
        assert answer.status == 401
        pages.append(re.sub(r'value="[^"]*"', "", answer.body.decode()))
    assert pages[0] == pages[1]


def test_a_code_is_good_once_and_a_recovery_code_too(deployment: Deployment) -> None:
    person = invite(deployment, "twice", "analyst")
    spent, last = person.codes[0], person.code()
    for code in (spent, last):
        answers = []
        for _ in range(2):
            person.post("/console/logout") if person.get("/console/account").status == 200 else None
            person.give_password(person.password)
            answers.append(person.post("/console/login/code", person.token("/console/login/code"), code=code).status)
        assert answers == [303, 401]
        person.cookie = None


def test_a_password_alone_opens_nothing(deployment: Deployment, ada: Person) -> None:
    anonymous = Person(deployment.client().using(None), name="ada")
    assert anonymous.give_password(anonymous.password).status == 303
    assert anonymous.get("/console/account").status == 303
    assert anonymous.post("/console/login/code", anonymous.token("/console/login/code"), code="000000").status == 401
    assert anonymous.get("/console/account").status == 303


def test_forms_without_the_token_of_their_session_are_refused(deployment: Deployment, ada: Person) -> None:
    if ada.get("/console/account").status != 200:
        ada.log_in()
    anonymous, other = Person(deployment.client().using(None)), Person(deployment.client().using(None))
    foreign = other.token("/console/login")
    for token in ("", "x", foreign):
        anonymous.get("/console/login")
        assert anonymous.post("/console/login", token, name="ada", password=ada.password).status == 403
        assert ada.post("/console/account/password", token, current=ada.password).status == 403
        assert ada.post("/console/logout", token).status == 403
    assert ada.get("/console/account").status == 200


def test_a_new_password_ends_the_other_sessions(deployment: Deployment) -> None:
    person = invite(deployment, "changer", "analyst")
    elsewhere = dataclasses.replace(person, cookie=None)
    elsewhere.log_in()
    assert elsewhere.get("/console/account").status == 200
    wrong = person.post("/console/account/password", current="no", wanted="x" * 9, repeated="x" * 9)
    assert wrong.status == 401
    new = "another battery staple"
    done = person.post("/console/account/password", current=person.password, wanted=new, repeated=new)
    assert done.headers["Location"].endswith("done=password-changed")
    assert person.get("/console/account").status == 200
    assert elsewhere.get("/console/account").status == 303


def test_a_setup_link_is_good_once(deployment: Deployment) -> None:
    link = make_link(deployment, "invite", "--role", "analyst")
    first, second = Person(deployment.client().using(None)), Person(deployment.client().using(None))
    first.set_up(link, "once")
    answer = second.get("/console/setup/" + link.rpartition("/")[2])
    assert answer.status == 410
    assert "used up" in text_of(answer)
