"""Which tenant a guard request belongs to."""

from uuid import UUID, uuid4

import pytest

from mailwarden.access.directory import Snapshot, TenantDirectory, assign
from mailwarden.access.tenants import TenantStore
from mailwarden.database.pool import Database
from mailwarden.errors import StorageUnavailable, TenantNotFound
from mailwarden.model.tenant import AssignedBy, Assignment, Profile, Tenant

DEFAULT = Tenant(UUID(int=1), "default", is_default=True)
ACME = Tenant(UUID(int=2), "acme", profile=Profile.STRICT, domains=("acme.example", "xn--bcher-kva.example"))
OTHER = Tenant(UUID(int=3), "other", domains=("other.example",))
SNAPSHOT = Snapshot.of(1, [DEFAULT, ACME, OTHER])

BY_DEFAULT = Assignment(DEFAULT.uid, AssignedBy.DEFAULT)


@pytest.mark.contract("3 tenantUid")
def test_a_tenant_that_is_named_is_taken_whatever_the_recipients_say() -> None:
    assert assign(SNAPSHOT, ACME.uid, ["a@other.example"]) == Assignment(ACME.uid, AssignedBy.REQUEST, Profile.STRICT)


@pytest.mark.contract("3 tenantUid")
def test_a_tenant_that_is_named_and_does_not_exist_is_an_error_and_never_the_default() -> None:
    with pytest.raises(TenantNotFound):
        assign(SNAPSHOT, uuid4(), ["a@acme.example"])


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
def test_recipients_of_one_tenant_assign_to_it(recipients: list[str]) -> None:
    assert assign(SNAPSHOT, None, recipients) == Assignment(ACME.uid, AssignedBy.DOMAINS, Profile.STRICT)


@pytest.mark.contract("3 tenantUid")
@pytest.mark.parametrize(
    "recipients",
    [
        [],
        [""],
        ["postmaster"],
        ["a@unknown.example"],
        ["a@acme.example", "b@unknown.example"],
        ["a@unknown.example", "b@acme.example"],
        ["a@acme.example", "b@other.example"],
        ["a@acme.example", "postmaster"],
        ["a@mail.acme.example"],
        ["a@notacme.example"],
        ["a@acme.example.evil.example"],
        ["a@acme.example>"],
        ["a@acme.example..", "b@acme.example"],
    ],
)
def test_anything_else_goes_to_the_default_tenant(recipients: list[str]) -> None:
    assert assign(SNAPSHOT, None, recipients) == BY_DEFAULT


def test_without_a_default_tenant_there_is_no_snapshot() -> None:
    with pytest.raises(StorageUnavailable):
        Snapshot.of(1, [ACME])


def test_a_directory_that_was_never_read_answers_nothing() -> None:
    directory = TenantDirectory(TenantStore(Database("postgresql://nobody@127.0.0.1:1/none")))
    assert not directory.loaded
    with pytest.raises(StorageUnavailable):
        directory.assign(None, ["a@acme.example"])
    with pytest.raises(StorageUnavailable):
        directory.assign(ACME.uid, ["a@acme.example"])
