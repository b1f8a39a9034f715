"""The actor of an audit event: its name, and the address of the call."""

from msgspec import Struct


class Actor(Struct, frozen=True):
    """`name` starts with the kind of the actor: `key:soar`, `cli:root`."""

    name: str
    address: str | None = None
    request_id: str = ""
