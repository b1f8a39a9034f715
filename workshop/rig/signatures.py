"""Signatures for clamd that match no message, as many as a real database has: its lookups cost what they cost there.

The content is the same in every run. The last signature of each file matches its probe, which shows that clamd loaded
the whole file.
"""

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# clamd's number of a file type, and its share of the patterns: programs, any file, HTML, mail and plain text.
_TARGETS = {1: 60, 0: 20, 3: 10, 4: 5, 7: 5}
_TEXT_TARGETS = {3, 4, 7}
_LETTERS = b'abcdefghijklmnopqrstuvwxyz    <>="/'
_SIZES = range(1_000, 2_000_000)


@dataclass(frozen=True, slots=True)
class SignatureSet:
    """The size of a set: half of the hashes are MD5, half SHA-256."""

    hashes: int
    patterns: int

    def write(self, folder: Path) -> None:
        """Write the files of the set into clamd's database folder."""
        dice = random.Random(self.hashes + self.patterns)
        made = {
            "set.hdb": _hashes(dice, 16, self.hashes // 2),
            "set.hsb": _hashes(dice, 32, self.hashes - self.hashes // 2),
            "set.ndb": _patterns(dice, self.patterns),
        }
        for name, lines in made.items():
            with (folder / name).open("w", encoding="ascii") as file:
                file.writelines(lines)
                file.write(_last_line(name))


REALISTIC = SignatureSet(hashes=500_000, patterns=50_000)
PROBES = {name: f"The probe of the signatures in {name}".encode("ascii") for name in ("set.hdb", "set.hsb", "set.ndb")}


def probe_name(file: str) -> str:
    """Return the name of the signature that matches the probe of a file."""
    return f"Rig.Probe.{file.removeprefix('set.')}"


def _hashes(dice: random.Random, length: int, count: int) -> Iterator[str]:
    for number in range(1, count):
        yield f"{dice.randbytes(length).hex()}:{dice.choice(_SIZES)}:Rig.Hash{length}.{number}\n"


def _patterns(dice: random.Random, count: int) -> Iterator[str]:
    targets = dice.choices(tuple(_TARGETS), tuple(_TARGETS.values()), k=max(0, count - 1))
    for number, target in enumerate(targets, 1):
        length = dice.randrange(16, 64)
        text = bytes(dice.choices(_LETTERS, k=length)) if target in _TEXT_TARGETS else dice.randbytes(length)
        yield f"Rig.Pattern.{number}:{target}:*:{text.hex()}\n"


def _last_line(file: str) -> str:
    probe, name = PROBES[file], probe_name(file)
    if file == "set.ndb":
        return f"{name}:0:*:{probe.hex()}\n"
    digest = hashlib.md5(probe, usedforsecurity=False) if file == "set.hdb" else hashlib.sha256(probe)
    return f"{digest.hexdigest()}:{len(probe)}:{name}\n"
