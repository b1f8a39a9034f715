"""Hashes of files: SHA-256, SHA-1 and MD5 as lower-case hex."""

import re
from collections.abc import Sequence

from mailwarden.errors import EntryTooBroad, InvalidEntry
from mailwarden.lists.kinds.kind import Kind, PlainForm

_LENGTHS = {"sha256": 64, "sha1": 40, "md5": 32}
_NAMED = re.compile(r"(sha-?256|sha-?1|md5) ?[:=] ?", re.IGNORECASE)
_HEX = re.compile(r"[0-9a-f]+", re.ASCII)
# Feeds contain these by mistake, and they would match every empty file.
_EMPTY_FILE = frozenset(
    {
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "d41d8cd98f00b204e9800998ecf8427e",
    }
)


def read_hash(text: str) -> str:
    name = _NAMED.match(text)
    digest = (text[name.end() :] if name else text).lower()
    if not _HEX.fullmatch(digest):
        raise InvalidEntry("A hash is written in hexadecimal digits.")
    if name and len(digest) != _LENGTHS[name[1].lower().replace("-", "")]:
        raise InvalidEntry(f"{name[1].upper()} has {_LENGTHS[name[1].lower().replace('-', '')]} hexadecimal digits.")
    if len(digest) not in _LENGTHS.values():
        raise InvalidEntry(f"A hash has 64 (SHA-256), 40 (SHA-1) or 32 (MD5) hexadecimal digits, not {len(digest)}.")
    return digest


def read_sha256(text: str) -> str:
    digest = read_hash(text)
    if len(digest) != _LENGTHS["sha256"]:
        raise InvalidEntry("Only SHA-256 names one exact file: files that share an MD5 or SHA-1 can be made.")
    return digest


def candidates_for_hashes(sha256: str, sha1: str = "", md5: str = "") -> list[str]:
    """Return the keys of the kinds `hash` and `sha256` for one file, SHA-256 first."""
    return [digest.lower() for digest in (sha256, sha1, md5) if digest]


def check_hash_breadth(entry: str, *, lets_through: bool) -> None:
    del lets_through
    if entry in _EMPTY_FILE:
        raise EntryTooBroad("This is the hash of the empty file: it would match every empty attachment.")


def may_be_empty_file(entries: Sequence[str], *, lets_through: bool) -> bool:
    del lets_through
    return not _EMPTY_FILE.isdisjoint(entries)


HASH = Kind(
    name="hash",
    form="The SHA-256, SHA-1 or MD5 of a file in hexadecimal digits.",
    examples=(
        (
            "9F86D081884C7D659A2FEAA0C55AD015A3BF4F1B2B0B822CD15D6C15B0F00A08",
            "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        ),
        ("sha1:a94a8fe5ccb19ba61c4c0873d391e987982fbbd3", "a94a8fe5ccb19ba61c4c0873d391e987982fbbd3"),
        ("098f6bcd4621d373cade4e832627b4f6", "098f6bcd4621d373cade4e832627b4f6"),
    ),
    read=read_hash,
    specificity=len,
    check_breadth=check_hash_breadth,
    plain=PlainForm("[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32}"),
    may_be_broad=may_be_empty_file,
)
SHA256 = Kind(
    name="sha256",
    form="The SHA-256 of a file in 64 hexadecimal digits.",
    examples=(
        (
            "SHA256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        ),
    ),
    read=read_sha256,
    specificity=len,
    check_breadth=check_hash_breadth,
    plain=PlainForm("[0-9a-f]{64}"),
    may_be_broad=may_be_empty_file,
)
