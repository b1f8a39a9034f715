"""Which tenant a guard request belongs to."""

from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from mailwarden.access.tenant_store import TenantStore
from mailwarden.access.tenants import Snapshot, TenantDirectory, group
from mailwarden.database.pool import Database
from mailwarden.errors import StorageUnavailable, TenantNotFound
from mailwarden.model.tenant import AssignedBy, Assignment, Profile, RecipientGroup, Tenant

DEFAULT = Tenant(UUID(int=1), "default", is_default=True)
ACME = Tenant(UUID(int=2), "acme", profile=Profile.STRICT, domains=("acme.example", "xn--bcher-kva.example"))
OTHER = Tenant(UUID(int=3), "other", domains=("other.example",))
SNAPSHOT = Snapshot.of(1, [DEFAULT, ACME, OTHER])

BY_DEFAULT = Assignment(DEFAULT.uid, AssignedBy.DEFAULT)


@pytest.mark.contract("3 tenantUid")
def test_a_named_tenant_overrides_the_recipients() -> None:
    (found,) = group(SNAPSHOT, ACME.uid, ["a@other.example", "a@acme.example"])
    assert found.assignment == Assignment(ACME.uid, AssignedBy.REQUEST, Profile.STRICT)
    assert found.recipients == ("a@other.example", "a@acme.example")


@pytest.mark.contract("3 tenantUid")
def test_a_tenant_that_is_named_and_does_not_exist_is_an_error_and_never_the_default() -> None:
    with pytest.raises(TenantNotFound):
        group(SNAPSHOT, uuid4(), ["a@acme.example"])


@pytest.mark.contract("3 tenantUid")
@pytest.mark.parametrize(
    "recipients",
    [
        ["a@acme.example"],
        ["A@ACME.Example."],
        ["a@acme.example", "b@acme.example"],
        ["a@acme.example", "b@bücher.example"],
    ],
)
def test_recipients_of_one_tenant_are_one_group(recipients: list[str]) -> None:
    (found,) = group(SNAPSHOT, None, recipients)
    assert found.assignment == Assignment(ACME.uid, AssignedBy.DOMAINS, Profile.STRICT)
    assert found.recipients == tuple(recipients)


@pytest.mark.contract("3 default tenant")
@pytest.mark.parametrize(
    "recipients",
    [
        [],
        [""],
        ["postmaster"],
        ["a@unknown.example", "postmaster"],
        ["a@mail.acme.example"],
        ["a@notacme.example"],
        ["a@acme.example.evil.example"],
        ["a@acme.example>"],
        ["a@acme.example..", "b@unknown.example"],
    ],
)
def test_recipients_of_no_tenant_belong_to_the_default_tenant(recipients: list[str]) -> None:
    assert group(SNAPSHOT, None, recipients) == (RecipientGroup(BY_DEFAULT, tuple(recipients)),)


@pytest.mark.contract("3 mixed recipients")
def test_recipients_of_several_tenants_are_grouped_in_their_order() -> None:
    recipients = ["x@nobody.example", "a@acme.example", "b@other.example", "c@acme.example", "postmaster"]
    assert [(each.tenant, each.assignment.by, each.recipients) for each in group(SNAPSHOT, None, recipients)] == [
        (DEFAULT.uid, AssignedBy.DEFAULT, ("x@nobody.example", "postmaster")),
        (ACME.uid, AssignedBy.DOMAINS, ("a@acme.example", "c@acme.example")),
        (OTHER.uid, AssignedBy.DOMAINS, ("b@other.example",)),
    ]


@pytest.mark.contract("3 mixed recipients")
@pytest.mark.parametrize("recipients", [["a@own.example", "x@nobody.example"], ["x@nobody.example", "a@own.example"]])
def test_a_group_with_a_recipient_of_no_tenant_was_taken_by_default(recipients: list[str]) -> None:
    snapshot = Snapshot.of(1, [replace(DEFAULT, domains=("own.example",)), ACME])
    (found,) = group(snapshot, None, recipients)
    assert found.assignment.by is AssignedBy.DEFAULT
    assert found.recipients == tuple(recipients)


def test_without_a_default_tenant_there_is_no_snapshot() -> None:
    with pytest.raises(StorageUnavailable):
        Snapshot.of(1, [ACME])


def test_a_directory_that_was_never_read_answers_nothing() -> None:
    directory = TenantDirectory(TenantStore(Database("postgresql://nobody@127.0.0.1:1/none")))
    assert not directory.loaded
    with pytest.raises(StorageUnavailable):
        directory.assign("a@acme.example")
    with pytest.raises(StorageUnavailable):
        directory.group(ACME.uid, ["a@acme.example"])
