"""The labelled corpus: its manifest, its messages without traces of their collection, and its classes.

Security: the messages are hostile and stay in a folder outside of the repository; nothing of them is executed.
"""

import csv
import hashlib
import importlib.util
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Literal

from msgspec import Struct

from mailwarden.model.envelope import Envelope, is_one_address
from workshop.evaluate.delivery import Authentication, Route, deliver, recipient_of, sender_address, sent_at

MANIFEST, MESSAGES, NORMALIZER = "MANIFEST.csv", "messages.tar.xz", "normalize.py"

Split = Literal["dev", "test"]
SPLITS = ("dev/", "test/")

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
# Every other label is an attack; one that is no class of its own counts as phishing.
_LABELS = {"ham": HAM, "spam": SPAM, "malware": MALWARE, "malware-simulated": MALWARE, "malformed": MALFORMED}
_GOOD_LABELS = frozenset({"ham", "good", "legitimate", "clean", "benign"})
# Delivered mail has one kind of line ends; files of one collection have two, which would reveal their source.
_HONEYPOT = re.compile(rb"phishing@pot\b", re.IGNORECASE)
_LINE_END = re.compile(rb"\r?\n")


class Sample(Struct, frozen=True):
    """One line of the manifest."""

    path: str
    label: str
    subset: str  # its group in the manifest
    source: str
    language: str = ""
    mail_from: str | None = None  # None: the manifest does not say
    auth: str = ""  # how it was authenticated in life, see workshop/evaluate/delivery.py
    corpus: str = ""
    origin: str = ""  # the collection that is left out as one
    cluster: str = ""  # near duplicates and threads, where the manifest says so

    @property
    def kind(self) -> str:
        """Return the class that it counts in; ham that is a test mail of a project is a separate class."""
        if self.label == "ham" and self.subset == "fixture":
            return FIXTURE
        if self.label == "phishing" and self.subset in _SIMULATED:
            return BEC_QR
        return _LABELS.get(self.label, PHISHING)

    @property
    def is_ham(self) -> bool:
        return self.label == "ham"

    @property
    def is_attack(self) -> bool:
        return self.label not in ("ham", "malformed")


class Submission(Struct, frozen=True):
    """A sample as it is submitted: its bytes and its envelope."""

    sample: Sample
    raw: bytes
    envelope: Envelope
    sent: float = 0.0  # when it was sent in life, by its own Date


class Corpus:
    """A corpus folder, and the folder in which it has one for its unpacked messages."""

    def __init__(self, folder: Path, unpacked: Path) -> None:
        if not (folder / MANIFEST).is_file():
            raise SystemExit(f"{folder} is no corpus: it has no {MANIFEST}")
        self.name = folder.resolve().name
        self._folder = folder
        self._archive = next(iter(sorted(folder.glob("messages.tar*"))), None)
        self._unpacked = unpacked / f"{self.name}-{self.key.hex()[:8]}" if self._archive else folder
        self._normalizer = _load(folder / NORMALIZER) if (folder / NORMALIZER).is_file() else None
        self._rows = self._read_manifest()
        # Set before messages are read, if authentication is replayed.
        self.authentication: Authentication | None = None

    @property
    def is_split(self) -> bool:
        """Return whether its messages are divided into dev and test."""
        return all(row["path"].startswith(SPLITS) for row in self._rows)

    def samples(self, split: Split, limit: int | None = None) -> list[Sample]:
        """Return the samples of one split, or all of a corpus without splits.

        `limit` selects so many of them, spread evenly over the manifest.
        """
        begins = f"{split}/" if self.is_split else ""
        rows = [row for row in self._rows if row["path"].startswith(begins)]
        if limit is not None and limit < len(rows):
            rows = [rows[position * len(rows) // limit] for position in range(limit)]
        return [self._sample(row) for row in rows]

    def unpack(self) -> None:
        """Unpack the messages once; an incomplete folder is unpacked again."""
        mark = self._unpacked / ".unpacked"
        if self._archive is None or mark.exists():
            return
        wanted = {row["path"] for row in self._rows}
        with tarfile.open(self._archive) as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                name = _listed(member.name, wanted)
                if content is None or not name:
                    continue
                place = self._unpacked / name
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content.read())
        mark.touch()

    def existing(self, samples: list[Sample]) -> list[Sample]:
        """Return the samples whose message is there."""
        return [sample for sample in samples if self._place(sample).is_file()]

    def prepare(self, samples: list[Sample], authentication: Authentication) -> None:
        """Have the authentication of these messages replayed."""
        self.authentication = authentication
        for sample in samples:
            if sample.auth:
                authentication.add(sample.auth, sample.mail_from, self._place(sample).read_bytes())

    def post(self, sample: Sample, now: float) -> Submission:
        """Return the message without the traces of its collection; malformed ones stay as they are."""
        raw = self._place(sample).read_bytes()
        if self._normalizer is None:
            return self._post_delivered(sample, raw, now)
        sent = sent_at(raw)
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
        return Submission(sample, _LINE_END.sub(b"\r\n", unmasked), envelope, sent)

    def _post_delivered(self, sample: Sample, raw: bytes, now: float) -> Submission:
        """Return a message of a corpus without a normaliser: as delivered, by its authentication in life if known."""
        if self.authentication is not None and sample.auth:
            route = self.authentication.route(sample.auth, sample.mail_from, raw)
        else:
            route = Route(sender=sender_address(raw) if sample.mail_from is None else sample.mail_from)
        recipient = recipient_of(raw)
        message = deliver(raw, route, recipient, now, self.authentication)
        envelope = Envelope(_printable(route.sender), (recipient,), route.address, route.helo)
        return Submission(sample, message, envelope, sent_at(raw))

    def posts(self, samples: list[Sample], now: float) -> Iterator[Submission]:
        for sample in samples:
            yield self.post(sample, now)

    @property
    def key(self) -> bytes:
        """Return a key that identifies this corpus: its manifest and its normaliser."""
        files = [file for file in (self._folder / MANIFEST, self._folder / NORMALIZER) if file.is_file()]
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).digest()

    def _read_manifest(self) -> list[dict[str, str]]:
        with (self._folder / MANIFEST).open(encoding="utf-8-sig", newline="", errors="replace") as file:
            reader = csv.DictReader(file)
            if "path" not in (reader.fieldnames or ()):
                raise SystemExit(f"{self._folder / MANIFEST} has no column `path`")
            rows = [{name: value or "" for name, value in row.items() if isinstance(name, str)} for row in reader]
        return [row for row in rows if _is_inside(row["path"])]

    def _sample(self, row: Mapping[str, str]) -> Sample:
        group = row.get("subset") or row.get("group") or row.get("label") or "messages"
        source = row.get("source") or group
        return Sample(
            row["path"],
            _label(row.get("label", ""), group),
            group,
            source,
            row.get("language", "").strip().lower(),
            None if "mail_from" not in row else _one_address(row["mail_from"]),
            row.get("auth", "").strip().lower(),
            self.name,
            # A corpus with a normaliser has one repository for many collections.
            source if self._normalizer is None else group,
            row.get("cluster", ""),
        )

    def _place(self, sample: Sample) -> Path:
        place = self._unpacked / sample.path
        return place if self._archive or place.is_file() else self._unpacked / "messages" / sample.path


def _label(label: str, group: str) -> str:
    """Return the label, "ham" for every word for good mail; without one the group says it."""
    word = label.strip().lower()
    if word:
        return "ham" if word in _GOOD_LABELS else word
    return "ham" if group.lower().startswith("ham") else "attack"


def _one_address(text: str) -> str:
    """Return the address without its brackets; a text that no SMTP client could send is the null sender."""
    address = text.strip().removeprefix("<").removesuffix(">")
    return address if is_one_address(address) else ""


def _is_inside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts


def _listed(member: str, wanted: set[str]) -> str:
    """Return the path in the manifest that a member of the archive is, or ""."""
    name = member.removeprefix("./")
    for path in (name, name.removeprefix("messages/"), f"messages/{name}"):
        if path in wanted:
            return path
    return ""


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
