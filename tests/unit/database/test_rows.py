"""Values of rows have the type that the store names, or the error says which column has another."""

from decimal import Decimal
from uuid import UUID

import pytest

from mailwarden.database.rows import checked, read, read_optional
from mailwarden.errors import InternalError

ROW = {"uid": UUID(int=1), "messages": Decimal(3), "until": None, "secret": "s3cret"}


def test_a_value_of_the_type_is_returned():
    assert read(ROW, "uid", UUID) == UUID(int=1)
    assert read_optional(ROW, "uid", UUID) == UUID(int=1)


def test_only_an_optional_value_may_be_missing():
    assert read_optional(ROW, "until", UUID) is None
    with pytest.raises(InternalError, match="until as NoneType, and not as UUID"):
        read(ROW, "until", UUID)


def test_another_type_is_an_error_with_the_column():
    with pytest.raises(InternalError, match="messages as Decimal, and not as int"):
        read(ROW, "messages", int)
    with pytest.raises(InternalError, match="count as str, and not as int"):
        checked("3", "count", int)


def test_the_error_has_no_value():
    with pytest.raises(InternalError) as caught:
        read_optional(ROW, "secret", int)
    assert "s3cret" not in str(caught.value)
