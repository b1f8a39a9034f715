"""The shipped rules as one file that is read in milliseconds, where reading them as YAML takes a second or two.

It lies beside Python's own compiled files and holds the digest of all that it was made from: where it is missing or
anything has changed since, it is passed over. `make setup` makes it; no service ever writes it.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from mailwarden.model.outcome import Verdict
from mailwarden.policy.profiles import VerdictRow
from mailwarden.policy.rule import Rule

FOLDER = Path(__file__).parent
FILE = FOLDER / "__pycache__" / "policy.json"


class Pieces(msgspec.Struct, frozen=True):
    """What a policy is made of, checked when it was compiled."""

    digest: str
    rules: tuple[Rule, ...]
    tags: Mapping[str, str]
    verdicts: Mapping[Verdict, VerdictRow]


def read_compiled(file: Path = FILE) -> Pieces | None:
    """Return what was compiled from the shipped files as they are now, if there is such a file."""
    try:
        pieces = msgspec.json.decode(file.read_bytes(), type=Pieces)
    except (OSError, msgspec.DecodeError):
        return None
    return pieces if pieces.digest == digest() else None


def write_compiled(
    rules: tuple[Rule, ...], tags: Mapping[str, str], verdicts: Mapping[Verdict, VerdictRow], file: Path = FILE
) -> None:
    file.parent.mkdir(exist_ok=True)
    part = file.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(Pieces(digest(), rules, tags, verdicts)))
    part.replace(file)


def digest() -> str:
    """Return the digest of the rules and of the code that reads them."""
    made = hashlib.sha256()
    for path in _sources():
        raw = path.read_bytes()
        made.update(f"{path.name} {len(raw)}\n".encode() + raw)
    return made.hexdigest()


def _sources() -> Iterator[Path]:
    yield from sorted((FOLDER / "rules").glob("*.yml"))
    for name in ("tags.yml", "profiles.yml", "rule.py", "rules.py", "profiles.py", "compiled.py"):
        yield FOLDER / name


if __name__ == "__main__":
    from mailwarden.policy.rules import FOLDER as SHIPPED
    from mailwarden.policy.rules import read_policy

    _policy = read_policy(SHIPPED)
    write_compiled(_policy.rules, _policy.tags, _policy.verdicts)
