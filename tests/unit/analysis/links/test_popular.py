"""The tables of domains: what is in them is found with its band, and nothing else is."""

from pathlib import Path

import pytest

from mailwarden.analysis.links.hosts import HostKind, kind_of
from mailwarden.analysis.links.imitations import imitated_by
from mailwarden.analysis.links.popular import (
    Band,
    DomainKind,
    DomainTable,
    band_of,
    domain_kind,
    encode_table,
    popular_domains,
    rank_domains,
)
from mailwarden.cli.main import main
from mailwarden.errors import ConfigurationError


def test_each_domain_is_found_with_its_band():
    bands = {f"shop-{number}.example": number % 3 + 1 for number in range(3_000)}
    table = DomainTable(encode_table(bands))
    assert table.count == len(bands)
    assert {name: table.band(name) for name in bands} == bands


def test_a_name_that_is_not_listed_is_not_found():
    table = DomainTable(encode_table({f"shop-{number}.example": 1 for number in range(3_000)}))
    assert not any(table.band(f"other-{number}.example") for number in range(20_000))
    assert table.band("") == 0
    assert table.band("\udcff" * 300) == 0


@pytest.mark.parametrize("data", [b"", b"MWDOMS01", b"x" * 300_000, encode_table({"a.example": 1})[:-1]])
def test_a_damaged_table_is_refused(data: bytes):
    with pytest.raises(ConfigurationError):
        DomainTable(data)


def test_a_rank_decides_the_band_and_two_lists_make_a_domain_popular():
    ranked = [("www.one.example", 1), ("two.example", 20_000), ("three.example", 200_000), ("four.example", 300_000)]
    bands = rank_domains([ranked, [("four.example", 0), ("five.example", 0)]])
    assert bands == {
        "one.example": Band.TOP,
        "two.example": Band.POPULAR,
        "three.example": Band.LISTED,
        "four.example": Band.POPULAR,
        "five.example": Band.LISTED,
    }


def test_the_shipped_tables_know_their_samples():
    assert popular_domains().count > 1_000_000
    assert [band_of(f"{name}.example") for name in ("top", "popular", "listed", "no-such")] == [1, 2, 3, 0]
    assert domain_kind("disposable.example") is DomainKind.DISPOSABLE
    assert band_of("wikipedia.org") is Band.TOP


def test_a_name_below_a_dynamic_domain_is_anybodys():
    assert kind_of("camera.dynamic.example") is HostKind.DYNAMIC
    assert kind_of("dynamic.example") is HostKind.OTHER
    assert kind_of("www.dynamic.example") is HostKind.OTHER


def test_the_command_makes_a_table_of_downloaded_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "ranks.csv").write_text("1,one.example\n150000,two.example\n", "utf-8")
    (tmp_path / "origins.csv").write_text("origin,rank\nhttps://www.two.example,1000000\n", "utf-8")
    (tmp_path / "list.json").write_text('{"list": [".three.example"], "name": "x"}', "utf-8")
    made = tmp_path / "popular.bin"
    names = [str(tmp_path / name) for name in ("ranks.csv", "origins.csv", "list.json")]
    assert main(["popular-domains", str(made), *names]) == 0
    assert "3 domains: 1 top, 1 popular" in capsys.readouterr().out
    table = DomainTable.open(made)
    assert [table.band(f"{name}.example") for name in ("one", "two", "three", "four")] == [1, 2, 3, 0]


def test_the_command_names_a_list_that_it_cannot_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["popular-domains", str(tmp_path / "popular.bin"), str(tmp_path / "none.csv")]) == 2
    assert "none.csv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("domain", "popular"),
    [
        ("top-sarnple-shop.example", "top-sample-shop.example"),
        ("top-samplle-shop.example", "top-sample-shop.example"),
        ("top-sample-shop.example", ""),
        ("top-sample-shop.test", ""),  # the same name under another ending
        ("popular.example", ""),  # it is popular itself
        ("quiet-harbour.example", ""),
        ("", ""),
    ],
)
def test_an_unknown_domain_may_imitate_a_popular_one(domain: str, popular: str):
    assert imitated_by(domain) == popular
