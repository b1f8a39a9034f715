"""Names that nobody chose, and long ones that somebody did."""

import pytest

from mailwarden.analysis.analyzers.sender import is_random_label, is_random_local


@pytest.mark.parametrize("label", ["zyfgqtpm", "i0q7zw6iwr", "mrjlzkpovxxsljrcrbskcb"])
def test_a_random_label_is_reported(label: str) -> None:
    assert is_random_label(label)


@pytest.mark.parametrize(
    "label",
    ["schwarzwald", "angstschweiss", "borntosch", "web2print", "1und1", "north", "xn--80ak6aa92e"],
)
def test_a_chosen_label_is_not(label: str) -> None:
    assert not is_random_label(label)


@pytest.mark.parametrize("local", ["MvSSrjf", "zSmLZbkdxnnxNL", "0u4cw6o4bk"])
def test_a_random_address_is_reported(local: str) -> None:
    assert is_random_local(local)


@pytest.mark.parametrize(
    "local", ["JohnMcDonald", "ada.north", "DoNotReply", "juergen1975", "xxxxxxxxx", "nfsmwlin", "R-1-270241-DE1", ""]
)
def test_a_chosen_address_is_not(local: str) -> None:
    assert not is_random_local(local)
