"""The catalogue has the lists of the contract, in its order; the page docs/lists.md pins the others."""

import pytest

from mailwarden.errors import EntryTooBroad, InvalidEntry
from mailwarden.feeds.model import TARGETS
from mailwarden.lists.catalogue import CATALOGUE, Category, Effect, find_list
from mailwarden.lists.kinds import KINDS

TABLE = [
    ("sender-block", "Block", "sender", 100_000, 1_000_000),
    ("sender-allow", "Allow", "sender", 100_000, 100_000),
    ("ip-block", "Block", "ip", 100_000, 1_000_000),
    ("ip-allow", "Allow", "ip", 10_000, 10_000),
    ("url-block", "Block", "url", 100_000, 10_000_000),
    ("url-allow", "Allow", "url", 100_000, 100_000),
    ("file-hash-block", "Block", "hash", 100_000, 10_000_000),
    ("file-hash-allow", "Allow", "sha256", 100_000, 100_000),
    ("attachment-block", "Block", "attachment", 1_000, 1_000),
    ("subject-block", "Block", "subject", 1_000, 1_000),
    ("recipient-exempt", "Exempt", "recipient", 10_000, 1_000),
    ("simulation-senders", "Exempt", "domain-or-ip", 1_000, 1_000),
    ("protected-people", "Impersonation", "person", 10_000, 1_000),
    ("protected-domains", "Impersonation", "domain", 10_000, 10_000),
    ("lookalike-ignore", "Impersonation", "domain", 10_000, 10_000),
    ("trusted-relays", "Trust", "ip", 1_000, 1_000),
]


@pytest.mark.contract("4")
def test_the_lists_of_the_contract_stay_in_its_order():
    found = [
        (each.name, each.category.value, each.kind.name, each.max_size(in_tenant=True), each.max_size(in_tenant=False))
        for each in CATALOGUE
    ]
    assert [row for row in found if row in TABLE] == TABLE, "their names, kinds and sizes are part of the API"


def test_an_opposite_blocks_the_same_values():
    for each in filter(lambda each: each.opposite, CATALOGUE):
        block = find_list(each.opposite)
        assert (block.category, block.opposite, block.match_on) == (Category.BLOCK, "", each.match_on), each.name


def test_a_list_that_delivers_yields_to_an_ambiguous_sender():
    delivering = {Effect.DELIVER_IF_AUTHENTICATED, Effect.NO_REPUTATION, Effect.EXEMPT, Effect.SIMULATION}
    clearing = {Effect.NO_URL_FINDING, Effect.CLEARED_FILE}
    found = {each.name for each in CATALOGUE if each.effect in delivering | clearing}
    assert found == {each.name for each in CATALOGUE if each.category in (Category.ALLOW, Category.EXEMPT)}


def test_feeds_fill_blocklists_that_have_a_kind_of_indicators():
    assert set(TARGETS) == {each.name for each in CATALOGUE if each.fed}
    assert {find_list(name).category for name in TARGETS} == {Category.BLOCK}


def test_every_list_is_described_in_one_sentence():
    assert [each.name for each in CATALOGUE if not each.description.endswith(".") or ". " in each.description] == []


def test_every_kind_is_used_and_named_by_its_key():
    assert {each.kind_name for each in CATALOGUE} == set(KINDS)
    assert [name for name, kind in KINDS.items() if kind.name != name] == []


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("sender-allow", "gmail.com"),
        ("sender-allow", "*.gmail.com"),
        ("sender-allow", "@GoogleMail.com"),
        ("url-allow", "https://outlook.com/"),
        ("simulation-senders", "web.de"),
    ],
)
@pytest.mark.contract("4")
def test_a_free_mail_domain_is_too_broad_where_it_lets_mail_through(name, refused):
    with pytest.raises(EntryTooBroad, match="is a free mail domain"):
        find_list(name).normalise(refused)


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("sender-allow", "ada@gmail.com"),
        ("sender-block", "gmail.com"),
        ("url-allow", "outlook.com/calendar"),
        ("recipient-exempt", "gmail.com"),
        ("protected-domains", "gmail.com"),
        ("lookalike-ignore", "gmail.com"),
    ],
)
def test_a_free_mail_domain_is_accepted_in_block_lists(name, taken):
    assert find_list(name).normalise(taken) == taken


@pytest.mark.parametrize(
    "name",
    ["sender-block", "sender-allow", "url-block", "url-allow", "recipient-exempt", "simulation-senders",
     "protected-domains", "lookalike-ignore"],
)  # fmt: skip
@pytest.mark.contract("4")
def test_a_public_suffix_is_too_broad_in_every_list_of_domains(name):
    for suffix in ["com", "co.uk", "CO.UK.", "github.io"]:
        with pytest.raises(EntryTooBroad, match="public suffix"):
            find_list(name).normalise(suffix)


def test_a_too_broad_entry_can_still_be_deleted():
    assert find_list("sender-allow").spell("@Gmail.com") == "gmail.com"
    assert find_list("ip-block").spell("10.0.0.0/7") == "10.0.0.0/7"


@pytest.mark.contract("4")
def test_only_a_sha256_clears_a_file():
    with pytest.raises(InvalidEntry, match="Only SHA-256"):
        find_list("file-hash-allow").normalise("098f6bcd4621d373cade4e832627b4f6")
