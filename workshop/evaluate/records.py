"""Stores scanned messages, one JSON line each, so that they can be judged again without a scan."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from mailwarden.analysis.analyzer import EngineAnswer
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence, Finding
from mailwarden.model.record import MessageSummary
from workshop.evaluate.corpus import Sample

SOURCES = Path(__file__).parents[2] / "src" / "mailwarden"
# The packages whose code makes evidence; policy is not one of them, because it is applied again each time.
_ROOMS = ("analysis", "message", "guard", "lists", "learning")
KEY_LENGTH = 12


class Scanned(Struct, frozen=True):
    """One message, its evidence, and the scores of other products."""

    sample: Sample
    evidence: Evidence
    subject: str = ""
    problem: str = ""  # the error, if guard itself failed
    rspamd: float | None = None
    spamassassin: float | None = None
    learned: tuple[Finding, ...] = ()  # the findings of a tenant's learning, trained with the dev split
    learned_elsewhere: tuple[Finding, ...] | None = None  # of ham: the same, trained without its own source
    envelope: Envelope | None = None
    summary: MessageSummary | None = None
    answers: dict[str, EngineAnswer] = {}  # of the engines, for analyzers that conclude from them
    sent: float = 0.0  # when it was sent in life, by its own Date


def key_of(corpus: bytes, samples: Iterable[Sample]) -> str:
    """Return a short key of the inputs of the evidence: these messages, and the code of the analyzers."""
    digest = hashlib.sha256(corpus)
    for room in _ROOMS:
        for file in sorted((SOURCES / room).rglob("*")):
            if file.suffix in {".py", ".yml", ".yaml"}:
                digest.update(file.read_bytes())
    for sample in samples:
        digest.update(sample.path.encode())
    return digest.hexdigest()[:KEY_LENGTH]


class RecordFile:
    """A file of scanned messages; it gets its name only when it is complete."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, records: Iterable[Scanned]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_suffix(".part")
        encoder = msgspec.json.Encoder()
        with part.open("wb") as file:
            for record in records:
                file.write(encoder.encode(record) + b"\n")
        part.replace(self.path)

    def read(self) -> list[Scanned]:
        decoder = msgspec.json.Decoder(Scanned)
        with self.path.open("rb") as file:
            return [decoder.decode(line) for line in file]


class Run(Struct, frozen=True):
    """The messages of a scan: a corpus, its split or "all", a sample or all of it, with authentication or without."""

    corpus: str
    split: str
    sample: int | None = None
    authenticated: bool = True

    def named(self, key: str) -> str:
        """Return the name of the file; a sample and the whole corpus have different names."""
        parts = [self.corpus, self.split, str(self.sample or ""), "" if self.authenticated else "unauthenticated", key]
        return "-".join(filter(None, parts)) + ".jsonl"


def newest(folder: Path, run: Run) -> RecordFile:
    """Return the file of the last finished scan of this kind."""
    files = sorted(folder.glob(run.named("?" * KEY_LENGTH)), key=lambda file: file.stat().st_mtime)
    if not files:
        raise SystemExit(f"{folder} has no scan {run.named('*')}: run it once without --rejudge and --refresh")
    return RecordFile(files[-1])
