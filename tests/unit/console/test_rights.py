"""Who may do what: the promises behind the table."""

import pytest

from mailwarden.access.users import Role
from mailwarden.console.permissions import DEPLOYMENT_ONLY, PERMISSIONS, Permission, may

WRITING = {right for right in Permission if right.endswith((".write", ".reset", ".export"))} | {Permission.ANALYZE}


def test_every_role_has_its_row() -> None:
    assert set(PERMISSIONS) == set(Role)


def test_an_auditor_reads_and_changes_nothing() -> None:
    assert not PERMISSIONS[Role.AUDITOR] & WRITING


def test_an_analyst_changes_lists_releases_and_says_what_messages_are_and_nothing_else() -> None:
    assert PERMISSIONS[Role.ANALYST] & WRITING == {
        Permission.QUARANTINE_WRITE,
        Permission.LISTS_WRITE,
        Permission.LEARNING_WRITE,
        Permission.ANALYZE,
    }


def test_nobody_but_a_deployment_administrator_changes_tenants() -> None:
    assert [role for role in Role if Permission.TENANTS_WRITE in PERMISSIONS[role]] == [Role.DEPLOYMENT_ADMINISTRATOR]


@pytest.mark.parametrize("right", sorted(DEPLOYMENT_ONLY))
@pytest.mark.parametrize("role", list(Role))
def test_what_belongs_to_the_deployment_is_not_for_a_tenants_people(role: Role, right: Permission) -> None:
    assert not may(role, right, whole_deployment=False)
