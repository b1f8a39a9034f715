"""Encodes a finished guard request as JSON with a version, compressed, and decodes it.

The journal and the history stores have the same bytes; the campaign, which only the store knows, is not among them.

Security: the strings come from hostile messages. NUL and lone surrogates are replaced; they never cause an error.
"""

import sys

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from mailwarden.errors import UnknownRecordVersion
from mailwarden.model.record import FinishedRequest
from mailwarden.model.storable import storable

VERSION = 1  # of a stored record; raise it, with a migration, when a stored field changes its meaning or its form

_LEVEL = 1  # of compression: a higher one takes more time than the bytes are worth
_COMPRESSED = b"\x28\xb5\x2f\xfd"  # how a zstd frame begins, and JSON never does

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(FinishedRequest)


class _Record(Struct, frozen=True):
    """The stored form: the version, and the request in the form of that version."""

    request: Raw
    version: int = 0


_record_decoder = msgspec.json.Decoder(_Record)


def encode(request: FinishedRequest) -> bytes:
    """Return the request as journal and stores have it: as JSON, compressed."""
    return zstd.compress(encode_plain(request), _LEVEL)


def encode_plain(request: FinishedRequest) -> bytes:
    """Return the request without its campaign, as JSON; lone surrogates are replaced."""
    if request.campaign is not None:
        request = replace(request, campaign=None)
    try:
        encoded = _encoder.encode(request)
    except UnicodeEncodeError:
        encoded = _encoder.encode(storable(msgspec.to_builtins(request)))
    return _encoder.encode(_Record(Raw(encoded), VERSION))


def plain(record: bytes) -> bytes:
    """Return the JSON of a record, compressed or not."""
    return zstd.decompress(record) if record.startswith(_COMPRESSED) else record


def as_json(record: bytes) -> bytes:
    """Return the JSON of a record; of one that cannot be read, a JSON string with its bytes in base64."""
    try:
        text = plain(record)
        msgspec.json.decode(text)
    except (zstd.ZstdError, msgspec.MsgspecError, ValueError):
        return _encoder.encode(record)
    return text


def decode(record: bytes) -> FinishedRequest:
    """Return the request that `encode` wrote, also if its facts had NaN or infinity.

    A record of another version is an error: its fields may mean something else.
    """
    try:
        stored = _record_decoder.decode(plain(record))
    except msgspec.ValidationError:
        raise UnknownRecordVersion(_unknown("no version")) from None
    if stored.version != VERSION:
        raise UnknownRecordVersion(_unknown(f"version {stored.version}"))
    try:
        return _decoder.decode(stored.request)
    except msgspec.ValidationError:
        return msgspec.convert(_without_null_facts(msgspec.json.decode(stored.request)), FinishedRequest)


def _unknown(found: str) -> str:
    return (
        f"A stored record has {found}, and this Mailwarden reads version {VERSION}. "
        "Run the same version of abby and guard everywhere, and `mailwarden database migrate`."
    )


def _without_null_facts(value: object) -> object:
    """Replace facts that are null by text: JSON has neither NaN nor infinity, and the encoder writes null."""
    if isinstance(value, dict):
        facts = value.get("facts")
        rest = {key: _without_null_facts(item) for key, item in value.items() if key != "facts"}
        if isinstance(facts, dict):
            rest["facts"] = {key: "not a number" if fact is None else fact for key, fact in facts.items()}
        return rest
    if isinstance(value, list):
        return [_without_null_facts(item) for item in value]
    return value
