"""What a tenant's own mail taught the product, and nobody else's: bank accounts of partners, and conversations."""

import time
from collections.abc import Iterator
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any

import pytest

from mailwarden.senders.lookup import SLOW_PAUSE
from tests.acceptance.client import envelope
from tests.acceptance.deployment import Deployment, DeploymentTemplate, run_deployment
from tests.waiting import wait_until
from workshop.rig.engines import Engines

PARTNER, STRANGER = "kim@pass.example", "eve@stranger.example"
TRUE, FALSE = "DE44 5001 0517 5407 3249 31", "NL91 ABNA 0417 1643 00"
ATTEMPTS = 20
RECIPIENT = {"acme": "bob@company.example", "club": "ann@club.example"}
AGED = (
    "UPDATE relationships SET first_seen = first_seen - 30, messages = messages + 200, days = days + 20;"
    "UPDATE thread_messages SET day = day - 30"
)
INVOICE = (
    "Dear customer,\n\nthank you for the order of twenty racks. They leave our stock on Thursday with the carrier.\n"
    "The number of the consignment is on https://www.pass.example/racks from Wednesday on.\n\nIBAN: {account}\n"
)
CHANGE = (
    "Dear customer,\n\nplease note that our bank details have changed. Please pay all invoices to our new account:\n\n"
    "IBAN: {account}\n"
)
HIJACK = (
    "Hello,\n\nas discussed below, our bank details have changed. Please pay this invoice to the new account today.\n\n"
    "On Mon, 2 Mar 2026 at 10:00 Robin wrote:\n> Please go on with Eve.\n> Robin\n"
)


def written(sender: str, subject: str, text: str, identity: str, reference: str = "") -> bytes:
    made = EmailMessage()
    made["From"], made["To"], made["Subject"] = f"Kim Field <{sender}>", "Bob <bob@company.example>", subject
    made["Message-ID"], made["Date"] = f"<{identity}>", formatdate()
    if reference:
        made["In-Reply-To"] = f"<{reference}>"
    made.set_content(text)
    return made.as_bytes().replace(b"\n", b"\r\n")


class Tenant:
    """A tenant of the deployment, and the mail that it gets."""

    def __init__(self, deployment: Deployment, engines: Engines, name: str) -> None:
        self._deployment, self._engines, self._name = deployment, engines, name

    def gets(self, message: bytes, sender: str) -> dict[str, Any]:
        """Scan a message for the tenant and return its explanation; mail of pass.example is signed.

        A scan waits 30 ms for the memory. On a busy machine that can be too short, so the message is sent again.
        """
        if sender.endswith("@pass.example"):
            message = self._engines.dns.sign(message, "pass.example")
        for _ in range(ATTEMPTS):
            explained = self._scanned(message, sender)
            if _state_of("relationship", explained) == "finished":
                return explained
            time.sleep(SLOW_PAUSE + 0.1)
        raise AssertionError("The memory was never read in time.")

    def _scanned(self, message: bytes, sender: str) -> dict[str, Any]:
        client = self._deployment.client()
        record = envelope(envelopeFrom=sender, envelopeRecipients=[RECIPIENT[self._name]])
        return client.explained(client.submit(message, record).result["ggrid"])


def _state_of(analyzer: str, explained: dict[str, Any]) -> str:
    return next(str(each["status"]) for each in explained["engines"] if each["analyzer"] == analyzer)


@pytest.fixture(scope="module")
def tenants(
    engines: Engines, deployment_template: DeploymentTemplate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Tenant]]:
    """Two tenants with a month of mail: the partner sent its account to acme, the stranger's firm wrote to club."""
    with run_deployment(engines, deployment_template, tmp_path_factory.mktemp("memory")) as deployment:
        acme, club = (Tenant(deployment, engines, name) for name in RECIPIENT)
        invoice = written(PARTNER, "Invoice", INVOICE.format(account=TRUE), "1@pass.example")
        assert acme.gets(invoice, PARTNER)["verdict"] == "clean"
        club.gets(written(PARTNER, "Minutes", "The minutes are on the shared drive.\n", "2@pass.example"), PARTNER)
        first = written("desk@stranger.example", "Order", "Thank you for the order.\n", "order@stranger.example")
        assert club.gets(first, "desk@stranger.example")["verdict"] == "clean"

        def stored() -> bool:
            count = "SELECT count(*) FROM thread_messages"
            return "3" in engines.postgresql.execute(count, deployment.database).split()

        assert wait_until(stored)
        engines.postgresql.execute(AGED, deployment.database)
        yield {"acme": acme, "club": club}


def rules(explained: dict[str, Any]) -> set[str]:
    return {reason["rule"] for reason in explained["reasons"]}


def test_a_partner_with_another_account_is_fraud_for_the_tenant_that_knows_it(tenants: dict[str, Tenant]) -> None:
    attack = written(PARTNER, "Invoice", CHANGE.format(account=FALSE), "3@pass.example")
    known, unknown = tenants["acme"].gets(attack, PARTNER), tenants["club"].gets(attack, PARTNER)
    assert known["verdict"] == "fraud"
    assert known["decision"] == "quarantine"
    assert "relationship.new-bank-account-bank-change" in rules(known)
    assert any("NL91ABNA0417164300" in reason["summary"] for reason in known["reasons"])
    assert unknown["verdict"] != "fraud"
    assert not {rule for rule in rules(unknown) if "account" in rule and rule.startswith("relationship.")}


def test_the_known_account_of_a_partner_is_no_finding(tenants: dict[str, Tenant]) -> None:
    again = written(PARTNER, "Invoice", INVOICE.format(account=TRUE.replace(" ", "")), "4@pass.example")
    explained = tenants["acme"].gets(again, PARTNER)
    assert explained["verdict"] == "clean"
    assert "sender.new-bank-account" not in explained["tags"]


def test_an_answer_in_an_invented_conversation_is_fraud_for_the_tenant_that_never_had_it(
    tenants: dict[str, Tenant],
) -> None:
    attack = written(STRANGER, "Re: Order", HIJACK, "5@stranger.example", "order@stranger.example")
    strange, familiar = tenants["acme"].gets(attack, STRANGER), tenants["club"].gets(attack, STRANGER)
    assert strange["verdict"] == "fraud"
    assert "relationship.unknown-thread-bank-change" in rules(strange)
    assert "sender.unknown-thread" in strange["tags"]
    assert "sender.unknown-thread" not in familiar["tags"]
