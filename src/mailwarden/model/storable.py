"""Text that PostgreSQL and UTF-8 can hold.

Security: the strings come from hostile messages. NUL and lone surrogates are replaced; they never cause an error.
"""

import re

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def replace_unstorable(text: str) -> str:
    """Replace NUL and lone surrogates, which PostgreSQL and UTF-8 cannot hold."""
    if text.isascii() and "\x00" not in text:
        return text
    return _UNSTORABLE.sub(_REPLACEMENT, text)


def storable(value: object) -> object:
    """Return a value of JSON with every text made storable."""
    if isinstance(value, str):
        return replace_unstorable(value)
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return value
