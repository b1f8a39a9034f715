"""`serve all` finds its own guard among abby's guards, and starts only if it is there."""

import pytest

from mailwarden.errors import ConfigurationError
from mailwarden.single_process import own_address

OTHER = "https://192.0.2.7:9785"  # of no host (RFC 5737)


@pytest.mark.parametrize(
    "own", ["https://127.0.0.1:9785", "https://localhost:9785", "https://127.0.0.1:9785/", "https://127.8.9.1:9785"]
)
def test_the_guard_of_this_host_is_found(own):
    assert own_address([OTHER, own], 9785) == own


@pytest.mark.parametrize("hosts", [[OTHER], ["https://127.0.0.1:9786"], ["https://no-such-name.invalid:9785"]])
def test_another_guard_is_never_taken_for_it(hosts):
    with pytest.raises(ConfigurationError, match=r"add https://127\.0\.0\.1:9785"):
        own_address(hosts, 9785)
