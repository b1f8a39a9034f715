"""How many messages a search has found."""

from msgspec import Struct


class Count(Struct, frozen=True):
    """A number of messages: exact, or the number counted in time with an estimate of the total."""

    counted: int
    exact: bool
    estimate: int
