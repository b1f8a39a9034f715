"""Validation errors in plain words: no Python type reaches a caller or an operator."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal
from uuid import UUID

import msgspec
import pytest

from mailwarden.errors import JSON_TYPES, YAML_TYPES, plain_problem


class Colour(StrEnum):
    RED = "red"


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=1_024)]
    tenant: UUID | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=64)] = 1
    share: float = 0.5
    on: bool = True
    until: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    entries: Annotated[tuple[str, ...], msgspec.Meta(max_length=1)] = ()
    weights: dict[str, int] = {}
    colour: Colour = Colour.RED
    side: Literal["left", "right"] = "left"
    code: Annotated[str, msgspec.Meta(pattern="^[a-z]+$")] = "a"


@pytest.mark.parametrize(
    ("value", "json", "yaml"),
    [
        ({"tenant": 4}, "must be a UUID or null, not an integer", "must be a UUID or empty, not a whole number"),
        ({"tenant": "x"}, "must be a UUID", "must be a UUID"),
        ({"name": 4}, "must be a string, not an integer", "must be text, not a whole number"),
        ({"name": ""}, "must have at least 1 character", "must have at least 1 character"),
        ({"name": "x" * 1_025}, "must have at most 1,024 characters", "must have at most 1,024 characters"),
        ({"count": 0}, "must be at least 1", "must be at least 1"),
        ({"count": 65}, "must be at most 64", "must be at most 64"),
        ({"count": 1.5}, "must be an integer, not a number", "must be a whole number, not a decimal number"),
        ({"share": "x"}, "must be a number, not a string", "must be a decimal number, not text"),
        ({"on": None}, "must be true or false, not null", "must be true or false, not empty"),
        ({"entries": ["a", "b"]}, "must have at most 1 item", "must have at most 1 item"),
        ({"entries": {}}, "must be an array, not an object", "must be a list, not a mapping"),
        ({"weights": {"a": "b"}}, "must be an integer, not a string", "must be a whole number, not text"),
        ({"colour": "blue"}, "has the unknown value 'blue'", "has the unknown value 'blue'"),
        ({"side": "up"}, "has the unknown value 'up'", "has the unknown value 'up'"),
        ({"code": "A"}, "must match the pattern ^[a-z]+$", "must match the pattern ^[a-z]+$"),
        ({"other": 1}, "has the unknown field `other`", "has the unknown field `other`"),
    ],
)
def test_a_validation_error_becomes_plain_words(value: dict[str, object], json: str, yaml: str) -> None:
    text = problem({"name": "a", **value})
    assert plain_problem(text, JSON_TYPES) == json
    assert plain_problem(text, YAML_TYPES) == yaml


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ("soon", "must be a time such as 2026-12-31T23:59:59Z"),
        ("2026-12-31T23:59:59", "must have a time zone: a time such as 2026-12-31T23:59:59Z"),
        (4, "must be a time such as 2026-12-31T23:59:59Z or null, not an integer"),
    ],
)
def test_an_invalid_time_shows_a_valid_one(value: object, plain: str) -> None:
    assert plain_problem(problem({"name": "a", "until": value})) == plain


def test_a_missing_field_is_named() -> None:
    assert plain_problem(problem({})) == "lacks the required field `name`"


def test_other_texts_stay() -> None:
    assert plain_problem("JSON is malformed: invalid character") == "JSON is malformed: invalid character"
    assert plain_problem("Integer value out of range - at `$.a`") == "integer value out of range"


def problem(value: object) -> str:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(value, Record)
    return str(caught.value)
