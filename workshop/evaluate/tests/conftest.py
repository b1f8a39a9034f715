"""The servers of the tests."""

from tests.conftest import engines

__all__ = ["engines"]
