"""Who may do what: the promises behind the table."""

import pytest

from mailwarden.access.users import Role
from mailwarden.console.permissions import DEPLOYMENT_ONLY, PERMISSIONS, Permission, may

WRITING = {right for right in Permission if right.endswith((".write", ".reset", ".export"))} | {Permission.ANALYZE}


def test_every_role_has_its_row() -> None:
    assert set(PERMISSIONS) == set(Role)


def test_an_auditor_reads_and_changes_nothing() -> None:
    assert not PERMISSIONS[Role.AUDITOR] & WRITING


def test_an_analyst_may_change_lists_release_and_report_only() -> None:
    assert PERMISSIONS[Role.ANALYST] & WRITING == {
        Permission.QUARANTINE_WRITE,
        Permission.LISTS_WRITE,
        Permission.TRAINING_WRITE,
        Permission.ANALYZE,
    }


def test_only_a_deployment_administrator_changes_tenants() -> None:
    assert [role for role in Role if Permission.TENANTS_WRITE in PERMISSIONS[role]] == [Role.DEPLOYMENT_ADMINISTRATOR]


def test_administrators_tune_weights_analysts_and_auditors_do_not() -> None:
    assert [role for role in Role if Permission.WEIGHTS_WRITE in PERMISSIONS[role]] == [
        Role.DEPLOYMENT_ADMINISTRATOR,
        Role.TENANT_ADMINISTRATOR,
    ]


@pytest.mark.parametrize("right", sorted(DEPLOYMENT_ONLY))
@pytest.mark.parametrize("role", list(Role))
def test_deployment_pages_are_closed_to_tenant_users(role: Role, right: Permission) -> None:
    assert not may(role, right, whole_deployment=False)
