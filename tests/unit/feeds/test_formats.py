"""Feeds as bytes: what each format yields, what is counted, and what rejects the whole update."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import pytest

from mailwarden.errors import FeedRejected
from mailwarden.feeds.indicators import Indicator, IndicatorKind, Skipped
from mailwarden.feeds.model import FeedFormat, FeedSettings
from mailwarden.feeds.parsing import parse
from mailwarden.feeds.text_formats import FieldMapping

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC)
HASH = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


def read(
    data: bytes | Sequence[bytes], form: FeedFormat, mapping: FieldMapping | None = None, most: int = 100
) -> tuple[list[Indicator], dict[str, int]]:
    settings = FeedSettings("https://feeds.example/x", form, "url-block", mapping or FieldMapping(), max_entries=most)
    skipped = Skipped()
    documents = (data,) if isinstance(data, bytes) else tuple(data)
    return list(parse(settings, documents, NOW, skipped)), dict(skipped.counts)


def values(found: Sequence[Indicator]) -> list[str]:
    return [each.value for each in found]


def test_plain_text_has_comments_and_defanged_values() -> None:
    text = b"\xef\xbb\xbf# a feed\n; also\n\nevil[.]example\nhxxp://bad.example/x#frag\n0.0.0.0 host.example # why\n"
    found, _ = read(text, FeedFormat.TEXT)
    assert values(found) == ["evil[.]example", "hxxp://bad.example/x#frag", "host.example"]
    assert found[0].reference == "line 4"


def test_csv_is_mapped_by_name_or_number() -> None:
    named = FieldMapping(value="URL", confidence="score", valid_until="until", tags="tags", kind="type")
    text = (
        b"# made today\nid,type,url,score,until,tags\n"
        b'1,url,"http://a.example/?q=1,2",90,2026-12-31,"phish;bank"\n2,ja3,abc,1,,\n'
    )
    found, skipped = read(text, FeedFormat.CSV, named)
    until = datetime(2026, 12, 31, tzinfo=UTC)
    assert found == [Indicator(IndicatorKind.URL, "http://a.example/?q=1,2", 90, until, ("phish", "bank"), "line 3")]
    assert skipped == {"unsupported kind ja3": 1}
    found, _ = read(b"x;a.example\ny;b.example\n", FeedFormat.CSV, FieldMapping(value="2", delimiter=";"))
    assert values(found) == ["a.example", "b.example"]


def test_ndjson_is_mapped_by_path() -> None:
    mapping = FieldMapping(value="ioc.value", confidence="ioc.confidence", reference="id", tags="tags")
    line = b'{"id": 7, "ioc": {"value": "a.example", "confidence": 80}, "tags": ["x", "y"]}\n\n'
    found, _ = read(line, FeedFormat.NDJSON, mapping)
    assert found == [Indicator(IndicatorKind.ANY, "a.example", 80, None, ("x", "y"), "7")]


def attribute(name: str, value: str, **more: object) -> dict[str, object]:
    return {"type": name, "value": value, "to_ids": True, "uuid": value, **more}


def test_misp_attributes_for_detection_become_indicators() -> None:
    sure = {"name": 'misp:confidence-level="usually-confident"'}
    event = {
        "Event": {
            "uuid": "e1",
            "Tag": [{"name": "tlp:clear"}],
            "Attribute": [
                attribute("domain", "evil.example", Tag=[sure]),
                attribute("domain", "no-ids.example", to_ids=False),
                attribute("domain", "deleted.example", deleted=True),
                attribute("regkey", "HKLM"),
            ],
            "Object": [{"Attribute": [attribute("sha256", HASH), attribute("ip-dst", "203.0.113.9")]}],
        }
    }
    found, skipped = read(msgspec.json.encode(event), FeedFormat.MISP)
    assert [(each.kind, each.value, each.confidence) for each in found] == [
        (IndicatorKind.DOMAIN, "evil.example", 75),
        (IndicatorKind.HASH, HASH, 50),
        (IndicatorKind.IP, "203.0.113.9", 50),
    ]
    assert found[0].tags == (sure["name"], "tlp:clear")
    assert skipped == {
        "attribute not for detection (to_ids)": 1,
        "deleted attribute": 1,
        "unsupported attribute regkey": 1,
    }
    manifest = msgspec.json.encode({"0b48eb52-5d4e-4d0c-8f8a-4d1d40b0d0c1": {"info": "x"}})
    assert len(read([manifest, msgspec.json.encode(event)], FeedFormat.MISP)[0]) == 3
    searched = {"response": {"Attribute": [attribute("url", "http://a.example/x")]}}
    assert values(read(msgspec.json.encode(searched), FeedFormat.MISP)[0]) == ["http://a.example/x"]


def indicator(pattern: str, number: int = 1, **more: object) -> dict[str, object]:
    return {
        "type": "indicator", "spec_version": "2.1", "id": f"indicator--{number}", "pattern_type": "stix",
        "pattern": pattern, "valid_from": "2026-01-01T00:00:00Z", "modified": "2026-01-01T00:00:00.000Z", **more,
    }  # fmt: skip


def bundle(*objects: object) -> bytes:
    return msgspec.json.encode({"type": "bundle", "id": "bundle--1", "objects": objects})


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("[domain-name:value = 'evil.example']", ["evil.example"]),
        ("[url:value='http://a.example/\\'x\\\\']", ["http://a.example/'x\\"]),
        ("[ipv4-addr:value = '203.0.113.9' OR ipv6-addr:value = '2001:db8::1']", ["203.0.113.9", "2001:db8::1"]),
        ("[domain-name:value = 'a.example'] OR [email-addr:value = 'x@b.example']", ["a.example", "x@b.example"]),
        (f"[file:hashes.'SHA-256' = '{HASH}']", [HASH]),
    ],
)
def test_stix_equality_joined_by_or_is_read(pattern: str, expected: list[str]) -> None:
    assert values(read(bundle(indicator(pattern)), FeedFormat.STIX)[0]) == expected


@pytest.mark.parametrize(
    "pattern",
    [
        "[domain-name:value = 'a.example' AND url:value = 'http://a.example/']",
        "[domain-name:value = 'a.example'] AND [domain-name:value = 'b.example']",
        "[domain-name:value = 'a.example'] FOLLOWEDBY [url:value = 'x']",
        "[domain-name:value != 'a.example']",
        "[NOT domain-name:value = 'a.example']",
        "[domain-name:value LIKE '%.example']",
        "[domain-name:value MATCHES '.*']",
        "[domain-name:value IN ('a.example', 'b.example')]",
        "[domain-name:value = 'a.example'] WITHIN 5 SECONDS",
        "[domain-name:value = 'a.example' OR process:name = 'x']",
        "[domain-name:value = 'a.example'",
        "domain-name:value = 'a.example'",
        "[domain-name:value = 'a.example' OR]",
        "[domain-name:value = 5]",
        "",
        "[" * 5_000,
    ],
)
def test_any_other_stix_pattern_is_counted_and_never_misread(pattern: str) -> None:
    found, skipped = read(bundle(indicator(pattern)), FeedFormat.STIX)
    assert (found, skipped) == ([], {"unsupported pattern": 1})


def test_stix_validity_versions_and_confidence_count() -> None:
    good = "[domain-name:value = 'evil.example']"
    found, skipped = read(
        bundle(
            indicator(good, 1, revoked=True),
            indicator(good, 2, valid_until="2026-02-01T00:00:00Z"),
            indicator(good, 3, valid_from="2027-01-01T00:00:00Z"),
            indicator("rule x {}", 4, pattern_type="yara"),
            indicator("[domain-name:value = 'old.example']", 5),
            indicator("[domain-name:value = 'new.example']", 5, modified="2026-03-01T00:00:00Z", confidence=85),
            indicator("[domain-name:value = 'gone.example']", 6),
            indicator("[domain-name:value = 'gone.example']", 6, modified="2026-03-01T00:00:00Z", revoked=True),
            {"type": "malware", "id": "malware--1"},
        ),
        FeedFormat.STIX,
    )
    assert [(each.value, each.confidence) for each in found] == [("new.example", 85)]
    assert skipped == {
        "revoked indicator": 2, "expired indicator": 1, "indicator that is not valid yet": 1,
        "unsupported pattern type yara": 1, "object that is no indicator": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("form", "data", "reason"),
    [
        (FeedFormat.TEXT, b"ok.example\n\xff\xfe", "not UTF-8"),
        (FeedFormat.TEXT, b"x" * 70_000, "more than 65,536 characters"),
        (FeedFormat.TEXT, b"a.example\n" * 101, "more than 100 entries"),
        (FeedFormat.CSV, b"host\na.example\n", "no column is named `value`"),
        (FeedFormat.CSV, b'value\n"a.example\n', "not CSV"),
        (FeedFormat.CSV, b"", "no row of names"),
        (FeedFormat.NDJSON, b'{"value": "a.example"}\n{"value": "b.ex', "Line 2: not JSON"),
        (FeedFormat.NDJSON, b'{"value": ""}', "the value is empty"),
        (FeedFormat.NDJSON, b"[1]", "not a JSON object"),
        (FeedFormat.NDJSON, b'{"value": ' + b"[" * 30_000, "nested too deep"),
        (FeedFormat.MISP, b'{"Event": {"Attribute": [{"type": "domain"}]}}', "no type or no value"),
        (FeedFormat.MISP, b"<html>", "this is not MISP"),
        (FeedFormat.MISP, b'{"x": 1}', "this is not MISP"),
        (FeedFormat.STIX, b'{"type": "report"}', "not `bundle`"),
        (FeedFormat.STIX, b'{"type": "bundle", "objects": [1]}', "not STIX"),
        (FeedFormat.STIX, bundle({"type": "indicator"}), "has no id"),
        (FeedFormat.STIX, bundle(indicator("[url:value = 'x']", confidence=101)), "0 to 100"),
        (FeedFormat.STIX, bundle(indicator("[url:value = 'x']", valid_until="soon")), "is no time"),
    ],
)
def test_broken_input_rejects_the_whole_update(form: FeedFormat, data: bytes, reason: str) -> None:
    with pytest.raises(FeedRejected, match=reason):
        read(data, form)


def test_skipped_items_count_towards_the_limit() -> None:
    unsupported = [attribute("ja3", str(number)) for number in range(101)]
    with pytest.raises(FeedRejected, match="more than 100 entries"):
        read(msgspec.json.encode({"response": {"Attribute": unsupported}}), FeedFormat.MISP)


def test_a_feed_cannot_name_any_number_of_reasons() -> None:
    kinds = b"".join(b"kind%d,a.example\n" % number for number in range(90))
    _, skipped = read(b"type,value\n" + kinds, FeedFormat.CSV, FieldMapping(kind="type"))
    assert (len(skipped), skipped["other reasons"], sum(skipped.values())) == (51, 40, 90)
