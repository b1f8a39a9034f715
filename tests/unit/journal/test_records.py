"""Stored records carry a version, and a record of another version is an error that says so."""

from uuid import UUID

import msgspec
import pytest

from mailwarden.errors import UnknownRecordVersion
from mailwarden.journal.records import VERSION, decode, encode, plain
from mailwarden.model.record import CampaignIds
from tests.samples.finished import finished_request


def test_a_record_is_read_back_whole():
    request = finished_request()
    assert decode(encode(request)) == request


@pytest.mark.parametrize("version", [0, VERSION + 1])
def test_a_record_of_another_version_is_an_error(version):
    record = msgspec.json.decode(plain(encode(finished_request()))) | {"version": version}
    with pytest.raises(UnknownRecordVersion, match=f"has version {version}, .* reads version {VERSION}"):
        decode(msgspec.json.encode(record))


def test_a_record_is_compressed_and_has_no_campaign():
    request = finished_request()
    record = encode(msgspec.structs.replace(request, campaign=CampaignIds(UUID(int=1), UUID(int=2))))
    assert decode(record) == decode(plain(record)) == request
    assert len(record) < len(plain(record)) * 0.6


def test_a_record_without_a_version_is_an_error():
    with pytest.raises(UnknownRecordVersion, match="has no version"):
        decode(msgspec.json.encode(finished_request()))


def test_a_number_that_json_has_not_is_no_error():
    request = finished_request()
    report = request.evidence.reports[0]
    finding = msgspec.structs.replace(report.findings[0], facts={"score": float("nan")})
    report = msgspec.structs.replace(report, findings=(finding,))
    request = msgspec.structs.replace(request, evidence=type(request.evidence)((report,)))
    assert decode(encode(request)).evidence.reports[0].findings[0].facts == {"score": "not a number"}
