"""What may be an Idempotency-Key."""

import pytest

from mailwarden.access.idempotency import check_key
from mailwarden.errors import SchemaViolation


@pytest.mark.contract("3 Idempotency-Key")
@pytest.mark.parametrize("key", ["a", "!~", "f" * 255, "8e03978e-40d5-43e8-bc93-6894a57f9324", '"quoted"'])
def test_visible_ascii_is_a_key(key: str) -> None:
    check_key(key)


@pytest.mark.contract("3 Idempotency-Key")
@pytest.mark.parametrize("key", ["", "a b", "f" * 256, "ü", "a\n", "\x00", "a\x7f", "\ud800"])
def test_anything_else_is_a_schema_violation(key: str) -> None:
    with pytest.raises(SchemaViolation):
        check_key(key)
