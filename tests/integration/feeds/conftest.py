"""A deployment with feeds, in a database of its own."""

from pathlib import Path

import pytest

from mailwarden.database.pool import Database
from tests.integration.feeds.feed_setup import FeedSetup


@pytest.fixture
def feeds(database: Database, tmp_path: Path) -> FeedSetup:
    return FeedSetup(database, tmp_path)
