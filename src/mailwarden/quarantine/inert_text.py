"""What strangers wrote, so that it can be shown to those it was meant to reach: cut, in plain signs, nothing to follow.

Programs that show mail make links of whatever looks like one, in plain text as well. So what looks like one is spoiled.

Security: works on hostile text, which comes out without controls, without signs that turn or hide others, and bounded.
"""

import re

# The dots that programs take for one between the labels of a host; the last label of one begins with a letter.
_DOT = re.compile(r"(?<=[^\W_])[.\u3002\uff0e\uff61](?=[^\W\d_])")
_SCHEME = re.compile(r":(?=/|\\)")


def inert(text: str, limit: int) -> str:
    """Return the text in one line of at most so many characters, not counting what spoils links."""
    plain = " ".join("".join(each if each.isprintable() else " " for each in text[: limit * 8]).split())
    if len(plain) > limit:
        plain = plain[: limit - 1] + "…"
    return _SCHEME.sub("[:]", _DOT.sub("[.]", plain))
