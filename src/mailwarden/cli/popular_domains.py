"""`mailwarden popular-domains`: makes the table of popular domains from lists that the operator downloaded."""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mailwarden.analysis.links.popular import Band, encode_table, rank_domains
from mailwarden.cli.command import Command
from mailwarden.errors import CommandError


class _Warninglist(msgspec.Struct):
    """A warning list of MISP: names without ranks."""

    list: tuple[str, ...]


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", type=Path, help="file to write: `popular.bin` in the folder of `domains.folder`")
    parser.add_argument("lists", type=Path, nargs="+", help="`rank,domain` in CSV, one name a line, or a MISP list")
    parser.add_argument("--top", type=Path, action="append", default=[], help="a list whose names all are top domains")


def _run(arguments: argparse.Namespace) -> int:
    bands = rank_domains([list(_read(file)) for file in arguments.lists])
    bands |= dict.fromkeys(rank_domains([list(_read(file)) for file in arguments.top]), int(Band.TOP))
    if not bands:
        raise CommandError("The lists have no domains.")
    part = arguments.table.with_suffix(".part")
    try:
        part.write_bytes(encode_table(bands))
        part.replace(arguments.table)
    except OSError as error:
        raise CommandError(f"Cannot write {error.filename}: {error.strerror}.") from None
    counts = {band: sum(each == band for each in bands.values()) for band in Band}
    print(f"{len(bands):,} domains: {counts[Band.TOP]:,} top, {counts[Band.POPULAR]:,} popular")
    return 0


def _read(file: Path) -> Iterator[tuple[str, int]]:
    """Yield the names of a list with their ranks, 0 without."""
    try:
        text = file.read_text("utf-8")
        if file.suffix == ".json":
            yield from ((name, 0) for name in msgspec.json.decode(text, type=_Warninglist).list)
            return
        for row in csv.reader(text.splitlines()):
            if len(row) > 1 and row[0].isdigit():
                yield row[1], int(row[0])
            elif len(row) > 1 and row[1].isdigit():
                yield row[0].rpartition("/")[2], int(row[1])
            elif row:
                yield row[0], 0
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise CommandError(f"Cannot read {file}: {error}.") from None


COMMAND = Command("mailwarden popular-domains etc/domains/popular.bin top-1m.csv", _arguments, _run)
