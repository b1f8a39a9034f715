"""Who did something: the name that records carry, and where the call came from."""

from msgspec import Struct


class Actor(Struct, frozen=True):
    """`name` says what it names as well: `key:soar`, `cli:root`."""

    name: str
    address: str | None = None
    request_id: str = ""
