"""A finished guard request as bytes and back, and strings as PostgreSQL can hold them.

Security: the strings come from hostile messages. NUL and lone surrogates are replaced, and never an error.
"""

import re

import msgspec

from mailwarden.model.record import FinishedRequest

MAX_TEXT = 2_000  # a column for searching; the record beside it holds the whole
_UNFIT = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_SEPARATOR = "\x1f"

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(FinishedRequest)


def encode(request: FinishedRequest) -> bytes:
    """Return the request as JSON in UTF-8; what UTF-8 cannot say is replaced."""
    try:
        return _encoder.encode(request)
    except UnicodeEncodeError:
        return _encoder.encode(_cleaned(msgspec.to_builtins(request)))


def decode(record: bytes) -> FinishedRequest:
    """Return the request that `encode` wrote, also one whose facts held a number JSON cannot say."""
    try:
        return _decoder.decode(record)
    except msgspec.ValidationError:
        return msgspec.convert(_without_missing_facts(msgspec.json.decode(record)), FinishedRequest)


def as_text(text: str) -> str:
    """Return the text as a column for searching holds it."""
    return _UNFIT.sub(_REPLACEMENT, text[:MAX_TEXT])


def as_joined(texts: tuple[str, ...]) -> str:
    """Return several texts as one, which `string_to_array` takes apart again in the database."""
    return _UNFIT.sub(_REPLACEMENT, _SEPARATOR.join(text[:MAX_TEXT].replace(_SEPARATOR, " ") for text in texts))


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return _UNFIT.sub(_REPLACEMENT, value)
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    return value


def _without_missing_facts(value: object) -> object:
    """Put a word where a fact was no number: JSON has neither NaN nor infinity, and the encoder writes null."""
    if isinstance(value, dict):
        facts = value.get("facts")
        rest = {key: _without_missing_facts(item) for key, item in value.items() if key != "facts"}
        if isinstance(facts, dict):
            rest["facts"] = {key: "not a number" if fact is None else fact for key, fact in facts.items()}
        return rest
    if isinstance(value, list):
        return [_without_missing_facts(item) for item in value]
    return value
