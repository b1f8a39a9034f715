"""Mutates a sample: inserts fragments of its format, deletes, changes, repeats and inserts random bytes."""

import random
from collections.abc import Sequence


def mutate(sample: bytes, dice: random.Random, fragments: Sequence[bytes]) -> bytes:
    """Return the sample after one to eight mutations."""
    data = bytearray(sample)
    for _ in range(dice.randint(1, 8)):
        at = dice.randint(0, len(data))
        action = dice.randint(0, 4)
        if action == 0:
            data[at:at] = dice.choice(fragments) * dice.choice((1, 1, 50, 200))
        elif action == 1:
            del data[at : at + dice.randint(1, 60)]
        elif action == 2 and at < len(data):
            data[at] = dice.randrange(256)
        elif action == 3:
            data[at:at] = data[max(at - dice.randint(1, 200), 0) : at]
        else:
            data[at:at] = dice.randbytes(dice.randint(1, 20))
    return bytes(data)
