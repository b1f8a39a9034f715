"""The labelled corpus: its manifest, its messages without traces of their collection, and its classes.

Security: the messages are hostile and stay in a folder outside of the repository; nothing of them is executed.
"""

import csv
import hashlib
import importlib.util
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Literal

from msgspec import Struct

from mailwarden.model.envelope import Envelope

MANIFEST, MESSAGES, NORMALIZER = "MANIFEST.csv", "messages.tar.xz", "normalize.py"

Split = Literal["dev", "test"]

# Classes that are measured separately. Simulated messages are few and our own, so they never count as phishing.
HAM, FIXTURE, PHISHING, SPAM, BEC_QR, MALWARE, MALFORMED = (
    "ham",
    "fixture",
    "phishing",
    "spam",
    "bec-qr",
    "malware",
    "malformed",
)
CLASSES = (PHISHING, SPAM, BEC_QR, MALWARE, MALFORMED, HAM, FIXTURE)
_SIMULATED = frozenset({"bec-simulated", "qr-simulated"})
# Delivered mail has one kind of line ends; files of one collection have two, which would reveal their source.
_HONEYPOT = re.compile(rb"phishing@pot\b", re.IGNORECASE)
_LINE_END = re.compile(rb"\r?\n")
_MEMBER = re.compile(r"(?:\./)?(?:dev|test)/[a-z-]+/[\w.-]+\.eml", re.ASCII)


class Sample(Struct, frozen=True):
    """One line of the manifest."""

    path: str
    label: str
    subset: str
    source: str

    @property
    def kind(self) -> str:
        """Return the class that it counts in; ham that is a test mail of a project is a separate class."""
        if self.label == "ham" and self.subset == "fixture":
            return FIXTURE
        if self.label == "phishing" and self.subset in _SIMULATED:
            return BEC_QR
        return {"malware-simulated": MALWARE}.get(self.label, self.label)


class Submission(Struct, frozen=True):
    """A sample as it is submitted: its bytes and its envelope."""

    sample: Sample
    raw: bytes
    envelope: Envelope


class Corpus:
    """A corpus folder, and the folder for its unpacked messages."""

    def __init__(self, folder: Path, unpacked: Path) -> None:
        for name in (MANIFEST, NORMALIZER):
            if not (folder / name).is_file():
                raise SystemExit(f"{folder} is no corpus: it has no {name}")
        self._folder = folder
        self._unpacked = unpacked
        self._normalizer = _load(folder / NORMALIZER)

    def samples(self, split: Split, limit: int | None = None) -> list[Sample]:
        """Return the samples of one split; `limit` selects so many of them, spread evenly over the manifest."""
        with (self._folder / MANIFEST).open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["path"].startswith(f"{split}/")]
        if limit is not None and limit < len(rows):
            rows = [rows[position * len(rows) // limit] for position in range(limit)]
        return [Sample(row["path"], row["label"], row["subset"], row["source"]) for row in rows]

    def unpack(self) -> None:
        """Unpack the messages once; an incomplete folder is unpacked again."""
        mark = self._unpacked / ".unpacked"
        if mark.exists():
            return
        with tarfile.open(self._folder / MESSAGES) as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                if content is None or not _MEMBER.fullmatch(member.name):
                    continue
                place = self._unpacked / member.name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content.read())
        mark.touch()

    def post(self, sample: Sample, now: float) -> Submission:
        """Return the message without the traces of its collection; malformed ones stay as they are."""
        raw = (self._unpacked / sample.path).read_bytes()
        if sample.kind == MALFORMED:
            envelope_fields = self._normalizer.raw_envelope(raw)
            return Submission(
                sample,
                raw,
                Envelope(_printable(envelope_fields["mail_from"]), ("user@corp.example",), envelope_fields["ip"]),
            )
        normal, envelope_fields = self._normalizer.normalize(raw, now)
        envelope = Envelope(
            _printable(envelope_fields["mail_from"]),
            (envelope_fields["rcpt"],),
            envelope_fields["ip"],
            envelope_fields["helo"],
        )
        # The normaliser leaves the honeypot's own address in From and Subject, where it would reveal the label.
        unmasked = _HONEYPOT.sub(str(envelope_fields["rcpt"]).encode(), normal)
        return Submission(sample, _LINE_END.sub(b"\r\n", unmasked), envelope)

    def posts(self, samples: list[Sample], now: float) -> Iterator[Submission]:
        for sample in samples:
            yield self.post(sample, now)

    @property
    def key(self) -> bytes:
        """Return a key that identifies this corpus: its manifest and its normaliser."""
        files = (self._folder / MANIFEST, self._folder / NORMALIZER)
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).digest()


def _printable(address: str) -> str:
    """Return the address without characters that an SMTP session would reject."""
    return "".join(letter for letter in address if letter.isascii() and letter.isprintable())[:320]


def _load(path: Path) -> ModuleType:
    """Load the corpus's own normaliser: it belongs to the corpus, and is never copied."""
    spec = importlib.util.spec_from_file_location("corpus_normalizer", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
