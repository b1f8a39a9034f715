"""Who may do what: the promises behind the table."""

import pytest

from mailwarden.access.people import Role
from mailwarden.console.permissions import DEPLOYMENT_ONLY, RIGHTS, Right, may

WRITING = {right for right in Right if right.endswith((".write", ".reset", ".export"))} | {Right.ANALYZE}


def test_every_role_has_its_row() -> None:
    assert set(RIGHTS) == set(Role)


def test_an_auditor_reads_and_changes_nothing() -> None:
    assert not RIGHTS[Role.AUDITOR] & WRITING


def test_an_analyst_changes_lists_releases_and_says_what_messages_are_and_nothing_else() -> None:
    assert RIGHTS[Role.ANALYST] & WRITING == {
        Right.QUARANTINE_WRITE,
        Right.LISTS_WRITE,
        Right.LEARNING_WRITE,
        Right.ANALYZE,
    }


def test_nobody_but_a_deployment_administrator_changes_tenants() -> None:
    assert [role for role in Role if Right.TENANTS_WRITE in RIGHTS[role]] == [Role.DEPLOYMENT_ADMINISTRATOR]


@pytest.mark.parametrize("right", sorted(DEPLOYMENT_ONLY))
@pytest.mark.parametrize("role", list(Role))
def test_what_belongs_to_the_deployment_is_not_for_a_tenants_people(role: Role, right: Right) -> None:
    assert not may(role, right, whole_deployment=False)
