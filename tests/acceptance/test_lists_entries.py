"""addEntries, deleteEntries and listEntries: what goes in comes out, and every count is right."""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
import requests

from tests.acceptance.list_client import PREFIX, modified

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture
def lists(deployment, engines):
    """Return a caller who may do everything, with every list empty."""
    # TRUNCATE would wait for every open transaction that has read entries.
    engines.postgresql.execute("DELETE FROM list_entries; UPDATE lists SET entries = 0", deployment.database)
    return deployment.lists()


@pytest.mark.spec("1 lists")
@pytest.mark.spec("4 addEntries")
@pytest.mark.spec("4 listEntries")
@pytest.mark.contract("4 ndjson")
@pytest.mark.contract("4 record")
@pytest.mark.contract("4 entry count")
def test_added_entries_are_streamed_one_per_line_in_order(lists):
    before = datetime.now(UTC).isoformat()
    assert (
        modified(lists.add("sender-block", "z.example", {"entry": "a.example", "comment": 'caf\u00e9 "x" \\ \n'})) == 2
    )

    answer = lists.stream("sender-block")

    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    assert answer.headers["X-Entry-Count"] == "2"
    assert answer.body.endswith(b"}\n")
    first, second = map(json.loads, answer.body.splitlines())
    assert list(first) == [
        "entry", "comment", "created", "createdBy", "updated", "updatedBy", "expires", "hits", "lastHit",
    ]  # fmt: skip
    assert (first["entry"], first["comment"]) == ("a.example", 'caf\u00e9 "x" \\ \n')
    assert (second["entry"], second["comment"]) == ("z.example", "")
    assert MOMENT.fullmatch(first["created"])
    assert before[:19] <= first["created"][:19] <= datetime.now(UTC).isoformat()[:19]
    assert (first["createdBy"], first["updatedBy"]) == ("key:all", "key:all")
    assert (first["expires"], first["hits"], first["lastHit"]) == (None, 0, None)


@pytest.mark.contract("4 ndjson")
def test_a_list_without_entries_is_an_empty_stream(lists):
    answer = lists.stream("lookalike-ignore")

    assert (answer.status, answer.body, answer.headers["X-Entry-Count"]) == (200, b"", "0")


@pytest.mark.spec("4 addEntries")
@pytest.mark.contract("4 updated")
def test_an_entry_that_exists_is_updated_and_counted(lists):
    lists.add("sender-block", {"entry": "a.example", "comment": "first"})
    (before,) = lists.entries("sender-block")
    time.sleep(0.002)  # times have milliseconds

    assert modified(lists.add("sender-block", {"entry": "a.example", "comment": "second"}, "b.example")) == 2

    after, _ = lists.entries("sender-block")
    assert (after["comment"], after["created"]) == ("second", before["created"])
    assert after["updated"] > before["updated"]


@pytest.mark.contract("4 comment")
def test_an_absent_comment_is_kept_and_an_empty_one_clears(lists):
    lists.add("sender-block", {"entry": "a.example", "comment": "kept"}, {"entry": "b.example", "comment": "gone"})

    lists.add("sender-block", "a.example", {"entry": "b.example", "comment": ""})

    assert [record["comment"] for record in lists.entries("sender-block")] == ["kept", ""]
    longest = {"entry": "c.example", "comment": "\u20ac" * 1_024}
    assert modified(lists.add("sender-block", longest)) == 1
    assert lists.add("sender-block", {**longest, "comment": "\u20ac" * 1_025}).error == "schema_violation"


@pytest.mark.contract("4 expires")
def test_an_entry_may_expire_and_is_listed_until_it_is_purged(lists):
    past = {"entry": "a.example", "expires": "2020-01-01T01:00:00+01:00"}
    lists.add("sender-block", past, {"entry": "b.example", "expires": "2040-05-06T07:08:09.12345Z"})

    assert [r["expires"] for r in lists.entries("sender-block")] == [
        "2020-01-01T00:00:00.000Z",
        "2040-05-06T07:08:09.123Z",
    ]
    lists.add("sender-block", {"entry": "a.example", "expires": None}, "b.example")
    assert [r["expires"] for r in lists.entries("sender-block")] == [None, "2040-05-06T07:08:09.123Z"]


@pytest.mark.contract("4 folded")
def test_duplicates_in_one_call_are_folded_after_normalisation_and_the_last_wins(lists):
    twice = [{"entry": " A.Example ", "comment": "first"}, {"entry": "a[.]example.", "comment": "last"}]

    assert modified(lists.add("sender-block", *twice)) == 1
    assert [r["comment"] for r in lists.entries("sender-block")] == ["last"]


@pytest.mark.spec("4 deleteEntries")
@pytest.mark.contract("4 ignored")
def test_deleting_counts_existing_entries_and_ignores_others(lists):
    lists.add("sender-block", "a.example", "b.example", "c.example")

    answer = lists.delete("sender-block", "A.EXAMPLE.", "a.example", "nobody.example", "no entry", "", "*", "b.example")

    assert modified(answer) == 2
    assert lists.names("sender-block") == ["c.example"]
    assert modified(lists.delete("sender-block", "a.example")) == 0


@pytest.mark.contract("4 empty")
def test_no_entries_are_no_modification(lists):
    assert modified(lists.add("sender-block")) == 0
    assert modified(lists.delete("sender-block")) == 0


@pytest.mark.contract("4 give back")
def test_a_line_can_be_given_back_as_it_is(lists):
    subject = {"entry": 'your "invoice" \\ is due', "comment": "why", "expires": "2040-01-01T00:00:00.000Z"}
    lists.add("subject-block", subject, '/\\d{4} "won"/i')
    before = lists.entries("subject-block")

    assert modified(lists.add("subject-block", *before)) == 2

    after = lists.entries("subject-block")
    assert [{**r, "updated": ""} for r in after] == [{**r, "updated": ""} for r in before]


@pytest.mark.contract("4 all or nothing")
@pytest.mark.contract("5 invalid_entry")
def test_one_invalid_entry_keeps_all_of_them_out(lists):
    answer = lists.add("sender-block", "a.example", "not an address@@", "b.example", "\u0007")

    assert (answer.status, answer.error) == (422, "invalid_entry")
    assert [(d["index"], d["entry"]) for d in answer.json["details"]] == [(1, "not an address@@"), (3, "\u0007")]
    assert all(detail["reason"] for detail in answer.json["details"])
    assert lists.names("sender-block") == []


@pytest.mark.contract("4 too broad")
@pytest.mark.contract("5 entry_too_broad")
@pytest.mark.parametrize(
    ("name", "entry"),
    [("sender-block", "co.uk"), ("sender-allow", "gmail.com"), ("ip-block", "10.0.0.0/7"), ("ip-block", "2001::/16")],
)
def test_an_entry_that_covers_too_much_is_refused(lists, name, entry):
    answer = lists.add(name, entry)

    assert (answer.status, answer.error) == (422, "entry_too_broad")
    assert answer.json["details"][0]["index"] == 0
    assert lists.names(name) == []


@pytest.mark.contract("4 normalisation")
@pytest.mark.parametrize(
    ("name", "given", "stored"),
    [
        ("sender-block", "  User@EXAMPLE.com. ", "user@example.com"),
        ("sender-block", "*.M\u00fcnchen.example", "*.xn--mnchen-3ya.example"),
        ("sender-block", "user[@]evil[.]example", "user@evil.example"),
        ("ip-block", "::ffff:192.0.2.1", "192.0.2.1"),
        ("ip-block", "2001:0db8:0000::/48", "2001:db8::/48"),
        ("url-block", "hxxps://user:pw@Evil[.]example:443/Path#frag", "evil.example/Path"),
        ("file-hash-block", "0CC175B9C0F1B6A831C399E269772661", "0cc175b9c0f1b6a831c399e269772661"),
        ("attachment-block", ".EXE", ".exe"),
    ],
)
def test_entries_are_kept_in_one_form_and_deleted_by_any(lists, name, given, stored):
    assert modified(lists.add(name, given)) == 1
    assert lists.names(name) == [stored]
    assert modified(lists.delete(name, given)) == 1
    assert lists.names(name) == []


@pytest.mark.contract("4 normalisation")
def test_an_entry_has_at_most_2000_characters_and_host_bits_are_zero(lists):
    assert lists.add("subject-block", "x" * 2_001).error == "invalid_entry"
    assert modified(lists.add("subject-block", "x" * 2_000)) == 1
    assert lists.add("ip-block", "192.0.2.1/24").error == "invalid_entry"


@pytest.mark.contract("4 maxSize")
@pytest.mark.contract("4 no room for updates")
@pytest.mark.contract("5 list_full")
def test_a_full_list_takes_updates_and_nothing_new(lists):
    for block in range(2):
        lists.add("attachment-block", *(f".b{block}x{n}" for n in range(500)))

    answer = lists.add("attachment-block", ".b0x1", ".more")

    assert (answer.status, answer.error) == (409, "list_full")
    assert modified(lists.add("attachment-block", ".b0x1", ".b1x1")) == 2
    assert len(lists.entries("attachment-block")) == 1_000
    lists.delete("attachment-block", ".b0x1")
    assert modified(lists.add("attachment-block", ".more")) == 1


@pytest.mark.contract("4 maxSize")
def test_max_size_holds_under_concurrency(lists):
    def fill(client: int) -> list[int]:
        calls = [lists.add("attachment-block", *(f".c{client}x{call}n{n}" for n in range(100))) for call in range(4)]
        return [answer.status for answer in calls]

    with ThreadPoolExecutor(8) as threads:
        statuses = [status for done in threads.map(fill, range(8)) for status in done]

    assert sorted(set(statuses)) == [200, 409]
    assert statuses.count(200) == 10
    assert len(lists.entries("attachment-block")) == 1_000


@pytest.mark.contract("4 broken stream")
def test_an_error_in_mid_stream_breaks_the_connection(deployment, engines, lists):
    lists.add("file-hash-block", "0" * 64)
    engines.postgresql.execute(
        "INSERT INTO list_entries SELECT (SELECT list_id FROM lists WHERE name = 'file-hash-block' AND tenant IS NULL),"
        " md5(n::text), '\"\"', '', '\"\"', '', '\"\"' FROM generate_series(1, 200000) n;"
        " UPDATE lists SET entries = 200001 WHERE name = 'file-hash-block' AND tenant IS NULL",
        deployment.database,
    )
    with requests.Session() as session:
        session.trust_env = False
        response = session.post(
            f"{lists.client.url}{PREFIX}/listEntries",
            json={"listName": "file-hash-block"},
            headers={"Authorization": f"apikey {lists.key}"},
            verify=str(lists.client.ca),
            stream=True,
            timeout=30,
        )
        assert response.headers["X-Entry-Count"] == "200001"
        chunks = response.iter_content(65_536)
        assert next(chunks).startswith(b'{"entry":"000')
        engines.postgresql.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COPY (%' AND state = 'active'",
        )
        with pytest.raises(requests.exceptions.ChunkedEncodingError):
            for _ in chunks:
                pass
    assert len(lists.stream("file-hash-block").body.splitlines()) == 200_001
