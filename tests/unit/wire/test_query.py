"""Queries are read as strictly as JSON: nothing unknown, nothing twice, nothing guessed."""

from uuid import UUID

import pytest

from mailwarden.errors import InvalidTenantUid, SchemaViolation
from mailwarden.user_reports.requests import MessageReportQuery, ReportKind, ReportsQuery
from mailwarden.wire.strict_json import read_query, refuse_query

TENANT = "6f1f8f0e-64a5-4b0e-9a43-16a2d1a5f7c1"


def read(**values: str) -> ReportsQuery:
    return read_query({"tenantUid": TENANT, **values}.items(), ReportsQuery)


def test_numbers_and_moments_are_read_from_text():
    query = read(limit="7", before="2026-11-15T09:00:00.123456Z")

    assert (query.tenant_uid, query.limit) == (UUID(TENANT), 7)
    assert str(query.before) == "2026-11-15 09:00:00.123456+00:00"


@pytest.mark.parametrize(
    "values",
    [
        {"limit": "0"},
        {"limit": "501"},
        {"limit": "7.0"},
        {"limit": "٣"},
        {"limit": "9" * 5_000},
        {"limit": ""},
        {"before": "1700000000"},
        {"before": "null"},
        {"before": "2026-11-15T09:00:00"},
        {"befor": "2026-11-15T09:00:00Z"},
    ],
)
def test_unknown_query_parameters_are_rejected(values):
    with pytest.raises(SchemaViolation):
        read(**values)


def test_a_name_that_stands_twice_is_refused():
    with pytest.raises(SchemaViolation, match="twice"):
        read_query([("tenantUid", TENANT), ("tenantUid", TENANT)], ReportsQuery)


def test_a_tenant_that_is_no_uuid_has_its_own_error():
    with pytest.raises(InvalidTenantUid):
        read(tenantUid="acme")


def test_a_caller_cannot_set_the_released_state():
    assert read_query([("kind", "good")], MessageReportQuery).kind is ReportKind.GOOD
    with pytest.raises(SchemaViolation, match="released"):
        read_query([("kind", "released")], MessageReportQuery)


def test_where_no_query_is_taken_the_first_name_of_one_is_refused():
    refuse_query(())
    with pytest.raises(SchemaViolation) as violation:
        refuse_query(("tenantUid", "x"))
    assert violation.value.details[0]["pointer"] == "/tenantUid"
