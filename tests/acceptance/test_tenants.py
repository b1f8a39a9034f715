"""Which tenant a guard request belongs to, and which tenants a token may name."""

import pytest

from tests.acceptance.client import envelope
from workshop.rig.samples import plain_message

MESSAGE = plain_message()
NOBODY = "00000000-0000-4000-8000-000000000000"


def recipients(*addresses: str) -> dict[str, object]:
    return envelope(envelopeRecipients=list(addresses))


@pytest.mark.spec("2 tenantUid")
def test_a_named_tenant_overrides_the_recipient_domains(client, deployment):
    result = client.submit(MESSAGE, recipients("bob@company.example"), tenant=deployment.tenants["club"]).result

    assert client.explained(result["ggrid"])["tenantUid"] == deployment.tenants["club"]
    assert "policy.default-tenant" not in result["tags"]


@pytest.mark.contract("3 tenant by domains")
@pytest.mark.parametrize(
    ("addresses", "tenant"),
    [
        (["bob@company.example"], "acme"),
        (["bob@company.example", "Eve@COMPANY.Example"], "acme"),
        (["ann@club.example"], "club"),
        (["<bob@company.example>", " eve@company.example."], "acme"),
    ],
)
def test_without_a_tenant_the_owner_of_all_recipient_domains_is_taken(client, deployment, addresses, tenant):
    result = client.submit(MESSAGE, recipients(*addresses)).result

    assert client.explained(result["ggrid"])["tenantUid"] == deployment.tenants[tenant]
    assert "policy.default-tenant" not in result["tags"]


@pytest.mark.contract("3 default tenant")
@pytest.mark.parametrize(
    "addresses",
    [
        pytest.param(["bob@elsewhere.example"], id="nobody's domain"),
        pytest.param(["bob@mail.company.example"], id="below a tenant's domain"),
        pytest.param(["postmaster"], id="no domain"),
    ],
)
def test_unknown_recipients_belong_to_the_default_tenant_with_a_tag(client, deployment, addresses):
    result = client.submit(MESSAGE, recipients(*addresses)).result

    assert client.explained(result["ggrid"])["tenantUid"] == deployment.tenants["default"]
    assert "policy.default-tenant" in result["tags"]


@pytest.mark.contract("5 tenant_not_found")
def test_an_unknown_tenant_is_reported_to_an_unrestricted_token(client):
    answer = client.submit(MESSAGE, tenant=NOBODY)

    assert (answer.status, answer.error) == (404, "tenant_not_found")


@pytest.mark.contract("5 tenant_forbidden")
def test_a_restricted_token_cannot_detect_foreign_tenants(deployment):
    client = deployment.client("acme")

    foreign = client.submit(MESSAGE, tenant=deployment.tenants["club"])
    unknown = client.submit(MESSAGE, tenant=NOBODY)

    assert (foreign.status, foreign.error) == (403, "tenant_forbidden")
    assert (unknown.status, unknown.body) == (foreign.status, foreign.body)
    assert set(unknown.headers) == set(foreign.headers)


@pytest.mark.contract("5 tenant_forbidden")
@pytest.mark.parametrize("address", ["ann@club.example", "bob@elsewhere.example"])
def test_a_restricted_token_does_not_get_around_it_by_naming_no_tenant(deployment, address):
    answer = deployment.client("acme").submit(MESSAGE, recipients(address))

    assert (answer.status, answer.error) == (403, "tenant_forbidden")


@pytest.mark.contract("3 tenant permission")
def test_a_restricted_token_may_use_its_own_tenant_named_or_by_domain(deployment):
    client = deployment.client("acme")

    assert client.submit(MESSAGE, tenant=deployment.tenants["acme"]).status == 200
    assert client.submit(MESSAGE, recipients("bob@company.example")).status == 200


@pytest.mark.contract("3 tenant permission")
def test_a_token_may_be_given_several_tenants_and_no_other(deployment):
    client = deployment.client("both")

    statuses = {
        name: client.submit(MESSAGE, tenant=deployment.tenants[name]).status for name in ("acme", "club", "bank")
    }

    assert statuses == {"acme": 200, "club": 200, "bank": 403}
