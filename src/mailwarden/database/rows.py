"""Reads values of rows by their types: another type than the statement promises is an error that names the column."""

from typing import TypeVar

from mailwarden.database.pool import Row
from mailwarden.errors import InternalError

T = TypeVar("T")


def read(row: Row, column: str, kind: type[T]) -> T:
    return checked(row[column], column, kind)


def read_optional(row: Row, column: str, kind: type[T]) -> T | None:
    value = row[column]
    return None if value is None else checked(value, column, kind)


def checked(value: object, name: str, kind: type[T]) -> T:
    """Return a value that is of the type; the error names the wrong type alone, as a value may be secret."""
    if isinstance(value, kind):
        return value
    raise InternalError(f"The database returned {name} as {type(value).__name__}, and not as {kind.__name__}.")
