"""What a tenant's own policy does to its scans: weights of its own, and only watching."""

import json
import time
from pathlib import Path

from tests.acceptance.client import envelope
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment, run_command

MESSAGE = Path("tests/analyzers/html/misleading-link.eml").read_bytes()
RULE = "html.link-mismatch"


def weight_for(deployment: Deployment, tenant: str) -> int:
    result = deployment.client().submit(MESSAGE, envelope(), tenant=tenant).result
    reasons = deployment.client().explained(result["ggrid"])["reasons"]
    return sum(reason["weight"] for reason in reasons if reason["rule"] == RULE)


def weigh(deployment: Deployment, *words: str) -> None:
    run_command("tenants", "weights", "club", *words, "--config", str(deployment.product.abby.folder))


def test_a_rule_weighs_otherwise_for_one_tenant_alone(deployment: Deployment) -> None:
    usual = weight_for(deployment, deployment.tenants["club"])
    weigh(deployment, "--set", f"{RULE}={usual - 1}")
    try:
        until = time.monotonic() + 10
        while weight_for(deployment, deployment.tenants["club"]) != usual - 1:
            assert time.monotonic() < until, "the weights never reached guard"
        assert weight_for(deployment, deployment.tenants["acme"]) == usual
    finally:
        weigh(deployment, "--reset")


def test_watch_only_delivers_with_a_tag(deployment: Deployment) -> None:
    root = sign_in(deployment, "deployment-administrator")
    fields = {"name": "watcher", "domains": "watcher.example", "profile": "monitor", "retention_days": ""}
    assert root.post("/console/tenants/new", fields).status_code == 303
    spam = Path("tests/analyzers/html/password-form.eml").read_bytes()
    watched = deployment.client().submit(spam, envelope(envelopeRecipients=["bob@watcher.example"])).result
    assert (watched["verdict"], watched["decision"]) == ("phishing", "deliver")
    assert "policy.monitor" in watched["tags"]
    trace = deployment.client().explained(watched["ggrid"])["decisionTrace"]
    assert "the profile balanced would have decided quarantine" in json.dumps(trace)


def test_samples_are_judged_by_a_running_abby(deployment: Deployment, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(deployment.tokens["everything"])
    (tmp_path / "form.eml").write_bytes(Path("tests/analyzers/html/password-form.eml").read_bytes())
    (tmp_path / "form.yml").write_text("verdict: phishing\ndecision: quarantine\nrefuse: [analysis.incomplete]\n")
    where = [
        "--url",
        deployment.product.url,
        "--ca",
        str(deployment.product.ca),
        "--token-file",
        str(tmp_path / "token"),
    ]
    tenant = ["--tenant", deployment.tenants["acme"]]
    reported = run_command("policy", "test", str(tmp_path), *where, *tenant)
    assert reported.splitlines() == ["ok    form.eml  phishing/quarantine", "1 samples, all as expected."]
