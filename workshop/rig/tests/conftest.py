"""The servers and databases of the tests."""

from tests.conftest import database_template, database_url, engines, reused_databases

__all__ = ["database_template", "database_url", "engines", "reused_databases"]
