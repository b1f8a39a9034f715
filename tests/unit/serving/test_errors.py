"""An error becomes its status, its body and the headers that belong to it."""

import pytest

from mailwarden import errors
from mailwarden.serving.errors import answer_for


@pytest.mark.contract("5")
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.TooManyEntries("Too many."), 400),
        (errors.ListNotFound("Not here."), 404),
        (errors.ListFull("Full."), 409),
        (errors.InvalidEntry("Wrong."), 422),
        (errors.EntryTooBroad("Too broad."), 422),
        (errors.RateLimited("Slower."), 429),
    ],
)
def test_an_error_of_the_lists_has_its_status(error, status):
    assert answer_for(error).status == status


def test_a_rate_limit_error_has_retry_after():
    assert answer_for(errors.RateLimited("Slower.", retry_after=7)).headers["Retry-After"] == "7"
