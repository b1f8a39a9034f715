"""The messages that both versions get: of folders with .eml files, of labelled corpora, or made here."""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import time
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.model.envelope import Envelope
from workshop.bench.messages import read_messages
from workshop.bench.variation import Variation
from workshop.evaluate.corpus import MANIFEST, Corpus
from workshop.evaluate.delivery import STRANGER_ADDRESS, STRANGER_HOST, Authentication, recipient_of, sender_address

MADE = 200  # messages, if no folder is given
WARM_UP = 40
UNPACKED = Path("run/corpus")
_PLAIN = re.compile(r"[a-z0-9.]+@[a-z0-9.]+")
TENANTS = {"north": "north.example", "south": "south.example"}

Item = TypeVar("Item")


class Message(Struct, frozen=True):
    """A message with its envelope; it is named in the output, and its text never is."""

    name: str
    raw: bytes
    envelope: Envelope

    @property
    def border(self) -> dict[str, object]:
        """Return the envelope as the scanning API takes it."""
        fields = {
            "envelopeFrom": self.envelope.sender,
            "envelopeRecipients": list(self.envelope.recipients),
            "remoteAddress": self.envelope.remote_address,
            "senderHelo": self.envelope.helo,
        }
        return {name: value for name, value in fields.items() if value is not None}


def read_folders(folders: Sequence[Path], sample: int | None, seed: int) -> tuple[list[Message], list[str]]:
    """Return the messages in an order by chance, and the DNS records of their senders.

    `sample` takes at most so many of each folder; the same seed takes the same ones in the same order.
    """
    dice, now, authentication = random.Random(seed), time(), Authentication()
    messages: list[Message] = [] if folders else list(_made(MADE, 0))
    for folder in folders:
        read = _of_corpus if (folder / MANIFEST).is_file() else _of_files
        messages += read(folder, sample, dice, authentication, now)
    dice.shuffle(messages)
    return [_to_tenants(number, message) for number, message in enumerate(messages)], authentication.records()


def _to_tenants(number: int, message: Message) -> Message:
    """Return every third message as it is, the others with recipients of one tenant or of both."""
    recipients = [f"ann@{domain}" for domain in (*TENANTS.values(),)[: number % 3]]
    envelope = message.envelope
    return replace(message, envelope=replace(envelope, recipients=tuple(recipients))) if recipients else message


def listed_senders(messages: Sequence[Message]) -> Mapping[str, Sequence[str]]:
    """Return entries that act on some of the messages, by list."""
    senders = sorted({message.envelope.sender for message in messages if _PLAIN.fullmatch(message.envelope.sender)})
    return {"sender-block": senders[:: len(senders) // 10 or 1], "sender-allow": senders[1 :: len(senders) // 10 or 1]}


def warm_up() -> list[Message]:
    return list(_made(WARM_UP, MADE))


def _made(count: int, start: int) -> Iterator[Message]:
    for size, made in read_messages(None).items():
        variation = Variation(made)
        variation.take(start)
        for number, raw in enumerate(variation.take(count // 2), 1):
            yield Message(f"{size}-{number}", raw, _envelope(raw))


def _of_corpus(
    folder: Path, sample: int | None, dice: random.Random, authentication: Authentication, now: float
) -> Iterator[Message]:
    corpus = Corpus(folder, UNPACKED)
    corpus.unpack()
    samples = corpus.samples("dev") + (corpus.samples("test") if corpus.is_split else [])
    chosen = _chosen(corpus.existing(samples), sample, dice)
    corpus.prepare(chosen, authentication)
    for posted in corpus.posts(chosen, now):
        yield Message(f"{corpus.name}/{posted.sample.path}", posted.raw, posted.envelope)


def _of_files(folder: Path, sample: int | None, dice: random.Random, _: Authentication, __: float) -> Iterator[Message]:
    files = sorted(folder.rglob("*.eml"))
    if not files:
        raise SystemExit(f"{folder} has neither .eml files nor a {MANIFEST}")
    for file in _chosen(files, sample, dice):
        raw = file.read_bytes()
        yield Message(f"{folder.name}/{file.relative_to(folder)}", raw, _envelope(raw))


def _chosen(items: list[Item], count: int | None, dice: random.Random) -> list[Item]:
    return items if count is None or count >= len(items) else dice.sample(items, count)


def _envelope(raw: bytes) -> Envelope:
    """Return an envelope from the header: always from the same client, and without an address that SMTP rejects."""
    sender = sender_address(raw)
    sender = sender if sender.isascii() and sender.isprintable() and len(sender) <= 320 else ""
    return Envelope(sender, (recipient_of(raw),), STRANGER_ADDRESS, STRANGER_HOST)
