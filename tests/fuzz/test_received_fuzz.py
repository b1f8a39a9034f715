"""Mutated Received lines: nothing raises, and no mutation of an EHLO name becomes the peer."""

import os
import random

from mailwarden.message.headers import decode_trace
from mailwarden.message.received import canonical_address, read_received
from tests.unit.message.test_received import CLAIMED, FORMATS, PEER

ROUNDS = 60_000 if os.environ.get("MAILWARDEN_FULL") else 3_000
SPLINTERS = ("[", "]", "(", ")", "\t", '"', "\\", ";", "=", ":", "\0", "\x0b", "by", "from", "with", "helo=", "IPv6:",
             f"[{CLAIMED}]", f"(x [{CLAIMED}])", "(Postfix)", "=?utf-8?q?", "?=", "\u2028", "(using ")  # fmt: skip


def test_mutated_lines_raise_nothing_and_have_a_real_address():
    dice = random.Random(20_260_105)
    for _ in range(ROUNDS):
        line = FORMATS[dice.choice(sorted(FORMATS))].format(ehlo="x.example", name="y.example", peer=PEER)
        for _ in range(dice.randint(1, 6)):
            at = dice.randint(0, len(line))
            line = line[:at] + dice.choice(SPLINTERS) + line[at + dice.randint(0, 3) :]
        found = read_received(decode_trace(line.encode("utf-8", "replace")))
        assert found is None or canonical_address(found.peer) == found.peer


def test_no_mutated_ehlo_name_without_a_space_becomes_the_peer():
    dice = random.Random(20_260_106)
    for _ in range(ROUNDS):
        ehlo = "".join(dice.choices(SPLINTERS, k=dice.randint(1, 10))).replace(" ", "")
        line = FORMATS[dice.choice(sorted(FORMATS))].format(ehlo=ehlo, name="y.example", peer=PEER)
        found = read_received(decode_trace(line.encode("utf-8", "replace")))
        assert found is None or found.peer == PEER
