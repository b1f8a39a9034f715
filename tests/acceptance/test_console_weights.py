"""The weights of a tenant's own, in the console."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from mailwarden.access.tenant_store import MAX_WEIGHTS
from mailwarden.policy.rules import bounds_of, defines_verdict, load_policy
from tests.acceptance.client import envelope
from tests.acceptance.console_session import ConsoleSession, sign_in, text_of
from tests.acceptance.deployment import Deployment, run_command
from tests.waiting import wait_until
from workshop.rig.samples import malware_message

RULE = "html.link-mismatch"
MESSAGE = Path("tests/analyzers/html/misleading-link.eml").read_bytes()
POLICY = load_policy()
KNOWN = {rule.id: rule for rule in POLICY.rules}


@pytest.fixture(scope="module")
def root(deployment: Deployment) -> ConsoleSession:
    return sign_in(deployment, "deployment-administrator")


@pytest.fixture
def path(deployment: Deployment) -> Iterator[str]:
    """Return the page of a tenant that has no weights, before the test and after it."""
    yield f"/console/tenants/{deployment.tenants['club']}"
    run_command("tenants", "weights", "club", "--reset", "--config", str(deployment.product.abby.folder))


def weigh(user: ConsoleSession, path: str, rule: str, weight: str) -> requests.Response:
    return user.post(f"{path}/weights", {"rule": rule, "weight": weight})


def test_a_rule_is_found_weighed_and_reset(deployment: Deployment, root: ConsoleSession, path: str) -> None:
    rule = KNOWN[RULE]
    least, most = bounds_of(rule)
    assert f'<option value="{RULE}">' in root.get(path).text
    looked = text_of(root.get(f"{path}/weights?rule={RULE}"))
    for words in (
        rule.name,
        RULE,
        f"Default {rule.weight} points",
        f"Allowed {least} to {most} points",
        rule.false_positives,
    ):
        assert words in looked
    answer = weigh(root, path, RULE, "0")
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{path}?done=weights-changed")
    assert re.search(rf"{re.escape(RULE)} \w+ {rule.weight} points 0 points", text_of(root.get(path)))
    assert wait_until(lambda: said_weights(deployment) == [0], pause=0.3)
    assert weigh(root, path, RULE, str(most)).status_code == 303
    assert f"For club {most} points" in text_of(root.get(f"{path}/weights?rule={RULE}"))
    assert root.post(f"{path}/weights/remove", {"rule": RULE}).headers["Location"] == f"{path}?done=weights-changed"
    assert root.post(f"{path}/weights/remove", {"rule": RULE}).status_code == 404
    audit = text_of(root.get(f"/console/audit?action=tenants.weights&tenant={deployment.tenants['club']}"))
    assert f"user:{root.name}" in audit


def said_weights(deployment: Deployment) -> list[int]:
    """Return what the rule weighs in a message that was scanned just now; a rule of no weight is told all the same."""
    result = deployment.client().submit(MESSAGE, envelope(), tenant=deployment.tenants["club"]).result
    reasons = deployment.client().explained(result["ggrid"])["reasons"]
    return [reason["weight"] for reason in reasons if reason["rule"] == RULE]


def test_words_find_rules_and_invalid_input_is_reported(root: ConsoleSession, path: str) -> None:
    found = root.get(f"{path}/weights?rule=password+form")
    assert "/weights?rule=html.credential-form" in found.text
    assert "add words to narrow" in text_of(root.get(f"{path}/weights?rule=the"))
    for text in ("no-such-rule", "<script>hit()</script>", "%00"):
        page = root.get(f"{path}/weights?rule={text}")
        assert page.status_code == 200
        assert "No rule has" in text_of(page)
        assert page.text.count("<script") == 6


def test_a_weight_out_of_bounds_is_reported_on_the_form(root: ConsoleSession, path: str) -> None:
    least, most = bounds_of(KNOWN[RULE])
    malware = next(rule for rule in POLICY.rules if rule.verdict == "malware" and rule.weight > 1)
    forced = next(rule for rule in POLICY.rules if rule.forces_quarantine)
    for rule, weight, sentence in (
        (RULE, str(most + 1), f"The weight of {RULE} must be {least} to {most} points, not {most + 1}."),
        (RULE, "-1", "points, not -1."),
        (RULE, "", "A weight is a whole number of points."),
        (RULE, "1.5", "A weight is a whole number of points."),
        (RULE, "٣", "A weight is a whole number of points."),
        (malware.id, str(malware.weight - 1), f"The weight of {malware.id} must be {malware.weight} to"),
        (forced.id, str(forced.weight + 1), "The rule forces quarantine. Its weight is fixed."),
        ("no.such", "5", "No rule has “no.such”"),
    ):
        answer = weigh(root, path, rule, weight)
        assert (answer.status_code, sentence in re.sub(r" ([.,])", r"\1", text_of(answer))) == (400, True), sentence
    assert "points Change Remove" not in text_of(root.get(path))


def test_there_is_an_end_to_them(root: ConsoleSession, path: str, deployment: Deployment) -> None:
    free = [rule for rule in POLICY.rules if bounds_of(rule)[0] == 0 and rule.weight > 0][: MAX_WEIGHTS + 1]
    settings = [word for rule in free[:MAX_WEIGHTS] for word in ("--set", f"{rule.id}=0")]
    run_command("tenants", "weights", "club", *settings, "--config", str(deployment.product.abby.folder))
    answer = weigh(root, path, free[-1].id, "0")
    assert (answer.status_code, f"at most {MAX_WEIGHTS} overridden weights" in text_of(answer)) == (400, True)
    assert weigh(root, path, free[0].id, "1").status_code == 303


HELD_MESSAGE = MESSAGE.replace(
    b"<head>", b'<head><meta http-equiv="refresh" content="0;url=https://elsewhere.example/">', 1
)
DEFAULT = KNOWN[RULE].weight


def scanned(deployment: Deployment, message: bytes = HELD_MESSAGE, tenant: str = "club") -> str:
    """Scan a message for a tenant, wait until history has it, and return its ggrid."""
    client = deployment.client()
    ggrid = str(client.submit(message, envelope(), tenant=deployment.tenants[tenant]).result["ggrid"])
    assert wait_until(lambda: client.explain(ggrid).status == 200, pause=0.1)
    return ggrid


def decision_of(deployment: Deployment, tenant: str) -> str:
    result = deployment.client().submit(HELD_MESSAGE, envelope(), tenant=deployment.tenants[tenant]).result
    return str(result["decision"])


@pytest.fixture
def raised(deployment: Deployment, root: ConsoleSession, path: str) -> Iterator[str]:
    """Let a rule weigh twice as much for two tenants, so that a message with it is held."""
    _, most = bounds_of(KNOWN[RULE])
    acme = f"/console/tenants/{deployment.tenants['acme']}"
    for each in (path, acme):
        assert weigh(root, each, RULE, str(most)).status_code == 303
    for name in ("club", "acme"):
        assert wait_until(lambda name=name: decision_of(deployment, name) == "quarantine", pause=0.3)
    yield path
    root.post(f"{acme}/weights/remove", {"rule": RULE})


def test_a_tenant_administrator_tunes_a_false_positive_from_the_message(deployment: Deployment, raised: str) -> None:
    user, club = sign_in(deployment, "tenant-administrator", ["club"]), deployment.tenants["club"]
    ggrid = scanned(deployment)
    tune = f"/console/messages/{ggrid}/tune"
    assert f'href="{tune}?tenant={club}"' in user.get(f"/console/messages/{ggrid}").text
    page = user.get(f"{tune}?tenant={club}")
    text = text_of(page)
    for words in (KNOWN[RULE].name, KNOWN[RULE].false_positives, "of club would have been delivered instead of held"):
        assert words in text
    assert " 0 messages of club would have been delivered" not in text
    weight = re.search(r'type="hidden" name="weight" value="(\d+)"', page.text)
    assert weight
    answer = user.post(tune, {"tenant": club, "rule": RULE, "weight": weight[1]})
    assert answer.status_code == 303
    saved = text_of(user.get(answer.headers["Location"]))
    assert "The weights were changed. Guards use them within a second." in saved
    assert f"{RULE} : {bounds_of(KNOWN[RULE])[1]} points to {weight[1]} points {user.name}" in saved
    assert wait_until(lambda: decision_of(deployment, "club") == "deliver", pause=0.3)
    assert decision_of(deployment, "acme") == "quarantine"
    audit = text_of(user.get(f"/console/audit?action=tenants.weights&tenant={club}"))
    assert ggrid in audit


def test_a_change_is_undone_once_and_only_while_it_is_current(deployment: Deployment, path: str) -> None:
    user, ggrid = sign_in(deployment, "tenant-administrator", ["club"]), scanned(deployment)
    for weight in ("20", "10"):
        assert weigh(user, path, RULE, weight).status_code == 303
    newest = re.findall(r'name="change" value="(\d+)"', user.get(path).text)[0]
    answer = user.post(f"{path}/weights/undo", {"change": newest, "message": ggrid, "rule": RULE})
    assert f"/messages/{ggrid}/tune" in answer.headers["Location"]
    assert re.search(rf"{RULE} \w+ {DEFAULT} points 20 points", text_of(user.get(path)))
    assert "weights-not-undone" in user.post(f"{path}/weights/undo", {"change": newest}).headers["Location"]
    for number in ("", "x", "0", "9" * 18, newest + "000000"):
        assert user.post(f"{path}/weights/undo", {"change": number}).status_code == 404
    forged = {"change": newest, "message": "../../tenants", "rule": RULE}
    assert user.post(f"{path}/weights/undo", forged).status_code == 404


def test_an_undo_stays_within_the_bounds_of_the_user(deployment: Deployment, root: ConsoleSession, path: str) -> None:
    assert weigh(root, path, "office.macro", "0").status_code == 303
    assert weigh(root, path, "office.macro", "50").status_code == 303
    user = sign_in(deployment, "tenant-administrator", ["club"])
    newest = re.findall(r'name="change" value="(\d+)"', user.get(path).text)[0]
    answer = user.post(f"{path}/weights/undo", {"change": newest})
    assert (answer.status_code, "must be 100 to 100 points, not 0" in text_of(answer)) == (400, True)
    assert root.post(f"{path}/weights/undo", {"change": newest}).status_code == 303


def test_a_tenant_administrator_changes_no_rule_that_defines_a_verdict(deployment: Deployment, path: str) -> None:
    user = sign_in(deployment, "tenant-administrator", ["club"])
    for rule in [rule for rule in POLICY.rules if defines_verdict(rule)][::5]:
        for weight in {0, rule.weight - 1, rule.weight + 1} - {rule.weight}:
            assert weigh(user, path, rule.id, str(weight)).status_code == 400, rule.id
    ggrid = scanned(deployment, malware_message())
    page = user.get(f"/console/messages/{ggrid}/tune")
    assert "The weights of malware rules cannot be lowered" in text_of(page)
    assert 'type="hidden" name="weight"' not in page.text


def test_others_tune_nothing_and_see_no_other_tenant(deployment: Deployment, path: str) -> None:
    ggrid, club = scanned(deployment), deployment.tenants["club"]
    tune = f"/console/messages/{ggrid}/tune"
    for role in ("analyst", "auditor"):
        user = sign_in(deployment, role, ["club"])
        assert "/tune" not in user.get(f"/console/messages/{ggrid}").text
        assert user.get(tune).status_code == 403
        assert user.post(tune, {"tenant": club, "rule": RULE, "weight": "0"}).status_code == 403
    stranger = sign_in(deployment, "tenant-administrator", ["acme"])
    assert stranger.get(f"{tune}?tenant={club}").status_code == 404
    assert stranger.post(tune, {"tenant": club, "rule": RULE, "weight": "0"}).status_code == 404
    for way in ("", "/remove", "/undo"):
        assert stranger.post(f"{path}/weights{way}", {"rule": RULE, "weight": "0", "change": "1"}).status_code == 404
    assert stranger.get(f"{path}/weights?rule={RULE}").status_code == 404


@pytest.mark.parametrize("weight", ["-5", "101", "x", "1.5"])
def test_an_invalid_weight_is_reported_beside_the_rule(deployment: Deployment, path: str, weight: str) -> None:
    user, club = sign_in(deployment, "tenant-administrator", ["club"]), deployment.tenants["club"]
    tune = f"/console/messages/{scanned(deployment)}/tune"
    shown = user.get(f"{tune}?tenant={club}&rule={RULE}&weight={weight}")
    assert (shown.status_code, "Save" in text_of(shown)) == (200, False)
    answer = user.post(tune, {"tenant": club, "rule": RULE, "weight": weight})
    assert (answer.status_code, KNOWN[RULE].name in text_of(answer)) == (400, True)
    gone = user.post(tune, {"tenant": club, "rule": "no.such", "weight": "1"})
    assert (gone.status_code, "There is no rule" in text_of(gone)) == (400, True)
