"""Makes the tables of popular domains and of kinds of domains that are shipped.

The folder has the warning lists of MISP, as the Python package `pymispwarninglists` has them. Decision 72 has their
sources and licences.
"""

import argparse
import json
from pathlib import Path

from mailwarden.analysis.links.companies import is_owned
from mailwarden.analysis.links.popular import KINDS, POPULAR, TOP_NAMES, Band, DomainKind, encode_table, rank_domains

TOP = "tranco10k"
RANKED = ("tranco", "google-chrome-crux-1million")
KIND_LISTS = {DomainKind.DYNAMIC: "dynamic-dns", DomainKind.DISPOSABLE: "disposable-email"}
# Reserved names (RFC 2606), for tests and samples.
SAMPLES = {
    "top.example": Band.TOP,
    "top-sample-shop.example": Band.TOP,
    "popular.example": Band.POPULAR,
    "listed.example": Band.LISTED,
}
MIN_NAME = 6  # letters
HEADING = ("# The most used domains, which others imitate. Made by `workshop.measure.domain_tables`; see decision 72.",)
KIND_SAMPLES = {"dynamic.example": DomainKind.DYNAMIC, "disposable.example": DomainKind.DISPOSABLE}


def read_list(folder: Path, name: str) -> list[str]:
    names: list[str] = json.loads((folder / name / "list.json").read_bytes())["list"]
    return [each.strip(".").lower() for each in names]


def popular_table(folder: Path) -> dict[str, int]:
    top = [(name, 1) for name in read_list(folder, TOP)]
    lists = [[(name, 0) for name in read_list(folder, each)] for each in RANKED]
    bands = rank_domains((lists[0], lists[1]))
    return (
        bands | dict.fromkeys(rank_domains([top]), int(Band.TOP)) | {name: int(band) for name, band in SAMPLES.items()}
    )


def kind_table(folder: Path, popular: dict[str, int]) -> dict[str, int]:
    """Return the kinds; a popular domain in such a list is more often a mistake than one of them."""
    kinds = {name: int(kind) for kind, each in KIND_LISTS.items() for name in read_list(folder, each)}
    known = (Band.TOP, Band.POPULAR)
    kept = {name: kind for name, kind in kinds.items() if "." in name and popular.get(name, 0) not in known}
    return kept | {name: int(kind) for name, kind in KIND_SAMPLES.items()}


def is_imitable(domain: str) -> bool:
    """Return whether a domain has a name that is long enough to be recognised, and one owner."""
    label = domain.partition(".")[0]
    return len(label) >= MIN_NAME and label.isascii() and not label.startswith("xn--") and is_owned(domain)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="Example: python -m workshop.measure.domain_tables lists"
    )
    parser.add_argument("lists", type=Path, help="folder with the warning lists")
    folder = parser.parse_args().lists
    popular = popular_table(folder)
    kinds = kind_table(folder, popular)
    for file, table in ((POPULAR, popular), (KINDS, kinds)):
        file.write_bytes(encode_table(table))
        print(f"{file.name}: {len(table):,} domains, {file.stat().st_size:,} bytes")
    names = sorted({domain for domain, band in popular.items() if band == Band.TOP and is_imitable(domain)})
    TOP_NAMES.write_text("\n".join((*HEADING, *names, "")), "ascii")
    print(f"{TOP_NAMES.name}: {len(names):,} domains")


if __name__ == "__main__":
    main()
