"""The weights of a tenant's own, in the console."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from mailwarden.access.tenants import MAX_WEIGHTS
from mailwarden.policy.rules import bounds_of, load_policy
from tests.acceptance.client import envelope
from tests.acceptance.console_session import ConsoleSession, sign_in, text_of
from tests.acceptance.deployment import Deployment, run_command
from tests.waiting import wait_until

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
    run_command("tenants", "weigh", "club", "--reset", "--config", str(deployment.product.abby.folder))


def weigh(user: ConsoleSession, path: str, rule: str, weight: str) -> requests.Response:
    return user.post(f"{path}/weights", {"rule": rule, "weight": weight})


def test_a_rule_is_found_weighed_and_reset(deployment: Deployment, root: ConsoleSession, path: str) -> None:
    rule = KNOWN[RULE]
    least, most = bounds_of(rule)
    assert f'<option value="{RULE}">' in root.get(path).text
    looked = text_of(root.get(f"{path}/weights?rule={RULE}"))
    for words in (rule.name, RULE, f"Default {rule.weight} points", f"Allowed here {least} to {most} points"):
        assert words in looked
    answer = weigh(root, path, RULE, "0")
    assert (answer.status_code, answer.headers["Location"]) == (303, f"{path}?done=weights-changed")
    assert re.search(rf"{re.escape(RULE)} \w+ {rule.weight} points 0 points", text_of(root.get(path)))
    assert wait_until(lambda: said_weights(deployment) == [0], pause=0.3)
    assert weigh(root, path, RULE, str(most)).status_code == 303
    assert f"here {most}" in text_of(root.get(f"{path}/weights?rule={RULE}"))
    assert root.post(f"{path}/weights/remove", {"rule": RULE}).headers["Location"] == f"{path}?done=weights-changed"
    assert root.post(f"{path}/weights/remove", {"rule": RULE}).status_code == 404
    audit = text_of(root.get(f"/console/audit?action=tenants.weigh&tenant={deployment.tenants['club']}"))
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
        assert page.text.count("<script") == 3


def test_a_weight_out_of_bounds_is_reported_on_the_form(root: ConsoleSession, path: str) -> None:
    least, most = bounds_of(KNOWN[RULE])
    malware = next(rule for rule in POLICY.rules if rule.verdict == "malware" and rule.weight > 1)
    forced = next(rule for rule in POLICY.rules if rule.forces_quarantine)
    for rule, weight, sentence in (
        (RULE, str(most + 1), f"A tenant may let {RULE} weigh {least} to {most} points, not {most + 1}."),
        (RULE, "-1", "points, not -1."),
        (RULE, "", "A weight is a whole number of points."),
        (RULE, "1.5", "A weight is a whole number of points."),
        (RULE, "٣", "A weight is a whole number of points."),
        (malware.id, str(malware.weight - 1), "A tenant may let"),
        (forced.id, str(forced.weight + 1), "The rule forces quarantine. A tenant cannot change it."),
        ("no.such", "5", "No rule has “no.such”"),
    ):
        answer = weigh(root, path, rule, weight)
        assert (answer.status_code, sentence in re.sub(r" ([.,])", r"\1", text_of(answer))) == (400, True), sentence
    assert "points Change Remove" not in text_of(root.get(path))


def test_there_is_an_end_to_them(root: ConsoleSession, path: str, deployment: Deployment) -> None:
    free = [rule for rule in POLICY.rules if bounds_of(rule)[0] == 0 and rule.weight > 0][: MAX_WEIGHTS + 1]
    settings = [word for rule in free[:MAX_WEIGHTS] for word in ("--set", f"{rule.id}=0")]
    run_command("tenants", "weigh", "club", *settings, "--config", str(deployment.product.abby.folder))
    answer = weigh(root, path, free[-1].id, "0")
    assert (answer.status_code, f"at most {MAX_WEIGHTS} overridden weights" in text_of(answer)) == (400, True)
    assert weigh(root, path, free[0].id, "1").status_code == 303


def test_users_without_the_right_see_weights_read_only(deployment: Deployment, root: ConsoleSession, path: str) -> None:
    assert weigh(root, path, RULE, "0").status_code == 303
    for role in ("tenant-administrator", "analyst", "auditor"):
        user = sign_in(deployment, role, ["club"])
        page = user.get(path)
        assert RULE in text_of(page)
        assert "/weights" not in page.text
        assert weigh(user, path, RULE, "1").status_code == 403
    stranger = sign_in(deployment, "tenant-administrator", ["acme"])
    assert stranger.get(path).status_code == 404
