"""What abby hands over about a tenant is what guard reads, and what nobody can mean is refused."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from mailwarden.abby.guard_client import headers_for
from mailwarden.errors import BadRequest
from mailwarden.guard.sources.rest_api import read_handover
from mailwarden.model.tenant import AssignedBy, Assignment, Profile
from mailwarden.wire.guard import DEADLINE_HEADER, PROFILE_HEADER, WEIGHTS_HEADER

PARCEL = cast("Any", SimpleNamespace(content_type="multipart/form-data"))


def handed(assignment: Assignment, **changes: str) -> dict[str, str]:
    return headers_for(PARCEL, UUID(int=7), assignment, "r1") | {DEADLINE_HEADER: "5000"} | changes


@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("weights", [{}, {"html.link-mismatch": 3, "fraud.payment": -4}])
def test_profile_and_weights_arrive_as_they_were_sent(profile, weights):
    assignment = Assignment(UUID(int=1), AssignedBy.DOMAINS, profile, weights)
    assert read_handover(handed(assignment)).assignment == assignment


def test_a_tenant_without_weights_costs_no_header():
    assert WEIGHTS_HEADER not in handed(Assignment(UUID(int=1), AssignedBy.DOMAINS))


@pytest.mark.parametrize(
    "changes",
    [{WEIGHTS_HEADER: "3"}, {WEIGHTS_HEADER: '{"a":'}, {WEIGHTS_HEADER: '{"a":"b"}'}, {PROFILE_HEADER: "odd"}],
)
def test_what_no_abby_sends_is_refused(changes):
    with pytest.raises(BadRequest):
        read_handover(handed(Assignment(UUID(int=1), AssignedBy.DOMAINS)) | changes)
