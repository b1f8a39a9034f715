"""What a page says after something was done: the code travels in the address, the sentence stands here."""

from collections.abc import Mapping

DONE = "done"

NOTICES: Mapping[str, str] = {
    "signed-out": "You are signed out.",
}
