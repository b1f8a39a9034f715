"""The entries of one call are taken together or refused together, with every reason."""

import msgspec
import pytest

from mailwarden.errors import InvalidEntry
from mailwarden.lists.catalogue import find_list
from mailwarden.lists.service import read_entries

SENDERS = find_list("sender-block")


def test_details_are_valid_json_and_truncated_for_any_entry():
    with pytest.raises(InvalidEntry) as refused:
        read_entries(SENDERS, ["\ud800.example", "x" * 5_000])
    msgspec.json.encode(refused.value.details)
    assert len(str(refused.value.details[1]["entry"])) <= 200
