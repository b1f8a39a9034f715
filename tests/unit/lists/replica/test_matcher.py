"""The replica: what is met of a tenant's and of the global lists, from a file of its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from mailwarden.errors import StorageUnavailable
from mailwarden.lists.kinds.hashes import candidates_for_hashes
from mailwarden.lists.kinds.networks import PrefixLengths, candidates_for_ip
from mailwarden.lists.kinds.people import candidates_for_name
from mailwarden.lists.kinds.senders import candidates_for_address
from mailwarden.lists.kinds.urls import candidates_for_url
from mailwarden.lists.matching import Match
from mailwarden.lists.replica.file import ReplicaFolder
from mailwarden.lists.replica.matcher import Replica
from tests.samples.replicas import Given, write_replica

ACME, OTHER = uuid4(), uuid4()
SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
LATER, EARLIER = "2100-01-01T00:00:00.000Z", "2001-01-01T00:00:00.000Z"

Write = Callable[[Mapping[tuple[UUID | None, str], Sequence[Given]]], Replica]


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Write]:
    replica = Replica(tmp_path / "lists", look=0.0)

    def write_one(lists: Mapping[tuple[UUID | None, str], Sequence[Given]]) -> Replica:
        write_replica(tmp_path / "lists", lists)
        return replica

    yield write_one
    replica.close()


def entries(matches: Sequence[Match]) -> list[str]:
    return [match.entry for match in matches]


def test_tenant_and_global_entries_match_with_their_scope(write: Write) -> None:
    replica = write({(None, "sender-block"): ["evil.example"], (ACME, "sender-block"): ["eve@evil.example"]})
    wanted = {"sender-block": candidates_for_address("Eve@Evil.example")}
    assert replica.match(ACME, wanted) == (
        Match("sender-block", "eve@evil.example", ACME),
        Match("sender-block", "evil.example", None),
    )
    assert replica.match(OTHER, wanted) == (Match("sender-block", "evil.example", None),)


def test_entries_come_in_the_order_of_the_candidates(write: Write) -> None:
    stored = ["*.example.com", "*.b.example.com", "a.b.example.com", "x@a.b.example.com"]
    replica = write({(ACME, "sender-block"): stored})
    found = replica.match(ACME, {"sender-block": candidates_for_address("x@a.b.example.com")})
    assert entries(found) == ["x@a.b.example.com", "a.b.example.com", "*.b.example.com", "*.example.com"]


def test_an_expired_entry_does_not_match(write: Write) -> None:
    replica = write({(None, "url-block"): [("old.example", EARLIER), ("new.example", LATER)]})
    wanted = {"url-block": [*candidates_for_url("http://old.example/"), *candidates_for_url("http://new.example/")]}
    assert entries(replica.match(ACME, wanted)) == ["new.example"]
    assert replica.entries_of(ACME, "url-block", 10) == ["new.example"]


def test_hashes_of_all_lengths_match(write: Write) -> None:
    replica = write({(None, "file-hash-block"): [SHA256, SHA256[:40], SHA256[:32]]})
    candidates = candidates_for_hashes(SHA256, SHA256[:40].upper(), SHA256[:32])
    assert entries(replica.match(ACME, {"file-hash-block": candidates})) == [SHA256, SHA256[:40], SHA256[:32]]
    assert sorted(replica.entries_of(ACME, "file-hash-block", 10)) == sorted([SHA256, SHA256[:40], SHA256[:32]])


def test_networks_match_by_their_prefix_lengths(write: Write) -> None:
    replica = write(
        {
            (None, "ip-block"): ["192.0.2.0/24", "2001:db8::/32"],
            (ACME, "ip-block"): ["192.0.2.7", "192.0.0.0/16"],
        }
    )
    lengths = replica.prefix_lengths(ACME, "ip-block")
    assert lengths == PrefixLengths((32, 24, 16), (32,))
    assert replica.prefix_lengths(OTHER, "ip-block") == PrefixLengths((24,), (32,))
    assert replica.prefix_lengths(OTHER, "ip-allow") == PrefixLengths((), ())
    found = replica.match(ACME, {"ip-block": candidates_for_ip("192.0.2.7", lengths)})
    assert entries(found) == ["192.0.2.7", "192.0.0.0/16", "192.0.2.0/24"]


def test_two_people_with_one_name_both_match(write: Write) -> None:
    people = ["Ada Byron <ada@example.com>", "Byron, Ada <ada@example.org>"]
    replica = write({(ACME, "protected-people"): people})
    assert entries(replica.match(ACME, {"protected-people": candidates_for_name("ADA BYRON")})) == people
    assert replica.entries_of(ACME, "protected-people", 10) == people


def test_subjects_match_text_and_patterns_unless_expired(write: Write) -> None:
    stored: list[Given] = [("you have won", EARLIER), ("final notice", LATER, "why"), "/invoice [0-9]+/i"]
    replica = write({(ACME, "subject-block"): stored})
    found = replica.match(ACME, {"subject-block": ["You have won: FINAL notice of Invoice 77"]})
    assert [(match.entry, match.comment) for match in found] == [("final notice", "why"), ("/invoice [0-9]+/i", "")]


async def test_many_subjects_are_made_ready_beside_the_loop(write: Write) -> None:
    replica = write({(ACME, "subject-block"): [f"/word{number}$/" for number in range(50)]})
    await replica.prepare(ACME)
    assert entries(replica.match(ACME, {"subject-block": ["a word7"]})) == ["/word7$/"]


def test_the_comment_comes_with_the_match(write: Write) -> None:
    stored = [("a.example", "", 'said "no" – ü'), ("b.example", "", 'said "no" – ü'), ("c.example", "", "")]
    replica = write({(None, "url-block"): stored})
    found = replica.match(ACME, {"url-block": ["a.example", "b.example", "c.example"]})
    assert [match.comment for match in found] == ['said "no" – ü', 'said "no" – ü', ""]


def test_only_lists_with_entries_are_in_use(write: Write) -> None:
    replica = write({(None, "url-block"): ["a.example"], (ACME, "ip-allow"): ["192.0.2.7"], (ACME, "ip-block"): []})
    assert replica.in_use(ACME) == {"url-block", "ip-allow"}
    assert replica.in_use(OTHER) == {"url-block"}
    assert replica.entries == 2


def test_an_invalid_value_matches_nothing(write: Write) -> None:
    replica = write({(None, "url-block"): ["a.example"], (None, "file-hash-block"): [SHA256]})
    hostile = {"url-block": ["\udc80", "\x00", "", "a.example"], "file-hash-block": ["zz", "a b", "", SHA256]}
    assert entries(replica.match(ACME, hostile)) == ["a.example", SHA256]


def test_more_candidates_than_one_statement_takes_are_all_looked_up(write: Write) -> None:
    stored = [f"host{number}.example" for number in range(0, 2_000, 2)]
    replica = write({(None, "url-block"): stored})
    found = replica.match(ACME, {"url-block": [f"host{number}.example" for number in range(2_000)]})
    assert entries(found) == stored


def test_without_a_replica_nothing_is_answered(tmp_path: Path) -> None:
    replica = Replica(tmp_path / "lists")
    assert not replica.loaded
    assert replica.lag_seconds is None
    for ask in (
        replica.in_use,
        lambda tenant: replica.match(tenant, {}),
        lambda tenant: replica.entries_of(tenant, "url-block", 1),
    ):
        with pytest.raises(StorageUnavailable):
            ask(ACME)


def test_a_new_copy_takes_the_place_of_the_old_one_and_the_old_files_go(write: Write, tmp_path: Path) -> None:
    replica = write({(None, "url-block"): ["a.example"]})
    assert replica.in_use(ACME) == {"url-block"}
    write({(None, "ip-block"): ["192.0.2.7"]})
    assert replica.in_use(ACME) == {"ip-block"}
    assert len(list((tmp_path / "lists").glob("*.sqlite"))) == len(list((tmp_path / "lists").glob("*.bits"))) == 1


def test_a_damaged_file_matches_nothing_and_is_reported_to_the_writer(write: Write, tmp_path: Path) -> None:
    replica = write({(None, "url-block"): ["a.example"]})
    (file,) = (tmp_path / "lists").glob("*.sqlite")
    file.write_bytes(b"not a database at all" * 1_000)
    with pytest.raises(StorageUnavailable):
        replica.in_use(ACME)
    assert ReplicaFolder(tmp_path / "lists").damaged
    write({(None, "url-block"): ["a.example"]})
    assert replica.loaded
    assert not ReplicaFolder(tmp_path / "lists").damaged


def test_hits_are_counted_per_entry_and_reset_when_taken(write: Write) -> None:
    replica = write({(None, "url-block"): ["a.example", "b.example"]})
    for _ in range(3):
        replica.note_hits(replica.match(ACME, {"url-block": ["a.example"]}))
    replica.note_hits([Match("url-block", "a.example", ACME)])  # the tenant has no such list
    assert {key: hit.count for key, hit in replica.hits.take().items()} == {(1, "a.example"): 3}
    assert replica.hits.take() == {}
