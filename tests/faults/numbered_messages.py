"""Messages for fault tests: each has its number in the first header field; generated or from a corpus.

Security: messages of a corpus are hostile; they are sent through the rig's servers on loopback and nowhere else.
"""

import hashlib
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from tests.acceptance.client import ENVELOPE
from workshop.evaluate.corpus import Corpus
from workshop.rig.dns import Dns
from workshop.rig.samples import malware_message, plain_message, spam_message

UNPACKED = Path("run/corpus")
DOMAIN = "pass.example"
LARGE = 1_200_000  # bytes: guard keeps what is above 1 MiB in its spool
NUMBER = re.compile(rb"^X-Number: (\d{6})\r\n", re.MULTILINE)
_TOP = 100_000  # bytes to search for the number, below fields added by servers
_LINE_END = re.compile(rb"\r?\n")
_SEED = 10_025
_SPAM, _MALWARE = (3, 8, 13, 18), (5, 15)  # of twenty numbers


@dataclass(frozen=True)
class NumberedMessage:
    number: int
    content: bytes
    address: str = str(ENVELOPE["remoteAddress"])  # of the host that it comes from

    @property
    def sender(self) -> str:
        return f"sender-{self.number}@{DOMAIN}"

    @property
    def digest(self) -> bytes:
        return hashlib.sha256(self.content).digest()


MessageSource = Callable[[int], NumberedMessage]


def find_number(content: bytes) -> tuple[int, int]:
    """Return the number of a message, and where the message itself begins."""
    found = NUMBER.search(content, 0, _TOP)
    assert found is not None, content[:2_000]
    return int(found[1]), found.start()


def is_threat(number: int) -> bool:
    """Return whether this one of our own messages is spam or malware."""
    return number % 20 in _SPAM or number % 20 in _MALWARE


def own_messages(dns: Dns) -> MessageSource:
    """Of twenty messages four are spam and two malware, which are held, and one is large."""

    def make(number: int) -> NumberedMessage:
        kind = number % 20
        if kind in _SPAM:
            raw = spam_message()
        elif kind in _MALWARE:
            raw = malware_message()
        else:
            raw = plain_message() + _lines(LARGE if kind == 10 else number % 400 * 40, number)
        return NumberedMessage(number, _numbered(number, dns.sign(raw, DOMAIN)))

    return make


def corpus_messages(folder: Path) -> tuple[MessageSource, int]:
    """Return the messages of both splits, mixed, and how many there are; every fiftieth is made a large one."""
    corpus = Corpus(folder, UNPACKED)
    corpus.unpack()
    samples = corpus.samples("dev") + corpus.samples("test")
    random.Random(_SEED).shuffle(samples)
    now = time.time()

    def make(number: int) -> NumberedMessage:
        posted = corpus.post(samples[number % len(samples)], now)
        raw = _LINE_END.sub(b"\r\n", posted.raw)
        raw += b"" if raw.endswith(b"\r\n") else b"\r\n"
        if number % 50 == 25:
            raw += _lines(max(LARGE - len(raw), 0), number)
        return NumberedMessage(number, _numbered(number, raw), _address(posted.envelope.remote_address))

    return make, len(samples)


def _numbered(number: int, raw: bytes) -> bytes:
    return b"X-Number: %06d\r\n" % number + raw


def _lines(size: int, number: int) -> bytes:
    line = b"Nothing is to be seen on this line of the message %06d.\r\n" % number
    return line * (size // len(line))


def _address(text: object) -> str:
    try:
        return str(ip_address(str(text)))
    except ValueError:
        return NumberedMessage.address
