"""Messages to measure with: those of a folder, or generated ones of the same sizes."""

import random
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path

_WORDS = [
    "the",
    "report",
    "shows",
    "that",
    "our",
    "delivery",
    "was",
    "on",
    "time",
    "and",
    "every",
    "customer",
    "received",
    "the",
    "order",
    "within",
    "two",
    "days",
    "please",
    "look",
    "at",
    "the",
    "attached",
    "figures",
    "and",
    "tell",
    "me",
    "whether",
    "the",
    "next",
    "meeting",
    "should",
    "be",
    "moved",
    "to",
    "thursday",
    "we",
    "thank",
    "you",
    "for",
    "the",
    "quick",
    "answer",
    "and",
    "will",
    "send",
    "the",
    "signed",
    "agreement",
    "with",
    "the",
    "invoice",
    "next",
    "week",
]


def read_messages(folder: Path | None) -> dict[str, list[bytes]]:
    """Return the messages of about 5 KB and of about 50 KB, by their names in the result line."""
    if folder is None:
        return {"5k": [make_message(n, 5_000) for n in range(20)], "50k": [make_message(n, 50_000) for n in range(20)]}
    found = {name: [path.read_bytes() for path in sorted(folder.glob(f"{name}_*.eml"))] for name in ("5k", "50k")}
    for name, messages in found.items():
        if not messages:
            raise SystemExit(f"{folder} holds no {name}_*.eml files")
    return found


def make_paragraphs(seed: int, size: int) -> list[str]:
    """Make sentences of sixty words, at least `size` characters together."""
    dice = random.Random(seed)
    paragraphs: list[str] = []
    written = 0
    while written < size:
        paragraphs.append(" ".join(dice.choices(_WORDS, k=60)).capitalize() + ".")
        written += len(paragraphs[-1])
    return paragraphs


def make_message(seed: int, size: int) -> bytes:
    """Make an ordinary business message with text, HTML and a few links, of about `size` bytes."""
    dice = random.Random(seed)
    message = EmailMessage()
    message["From"] = f"Ann Example <ann{seed}@sender.example>"
    message["To"] = "bob@corp.example"
    message["Subject"] = " ".join(dice.choices(_WORDS, k=6))
    message["Date"] = format_datetime(datetime.now(UTC))
    message["Message-ID"] = f"<{seed}.{size}@sender.example>"
    paragraphs = make_paragraphs(seed, int(size * 0.45))
    message.set_content("\n\n".join(paragraphs))
    linked = "".join(
        f'<p>{text} <a href="https://www.sender.example/{n}">More</a></p>\n' for n, text in enumerate(paragraphs)
    )
    message.add_alternative(f"<html><body>{linked}</body></html>", subtype="html")
    return message.as_bytes().replace(b"\n", b"\r\n")
