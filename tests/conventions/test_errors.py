"""Every error a caller can see has one code and one row in the status table."""

from mailwarden import errors
from mailwarden.errors import CommandError, ConfigurationError, MailwardenError
from mailwarden.serving.errors import STATUS_OF

UNSEEN = {ConfigurationError, CommandError, MailwardenError}
SEEN = {
    error
    for error in vars(errors).values()
    if isinstance(error, type) and issubclass(error, MailwardenError) and error not in UNSEEN
}


def test_every_error_has_one_row_in_the_status_table() -> None:
    assert set(STATUS_OF) == SEEN


def test_every_code_belongs_to_one_error() -> None:
    codes = [error.code for error in SEEN]
    assert len(set(codes)) == len(codes)


def test_every_error_has_a_code_of_its_own() -> None:
    assert [error.__name__ for error in SEEN if "code" not in vars(error)] == []
