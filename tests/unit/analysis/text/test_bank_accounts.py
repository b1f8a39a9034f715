"""Bank accounts are found in one form however they are written, and only with right check digits."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.analysis.text.bank_accounts import find_accounts, is_iban, is_routing_number
from mailwarden.analysis.text.folding import fold

GERMAN = "DE44500105175407324931"


def found(text: str) -> list[str]:
    return list(find_accounts(fold(text)))


@pytest.mark.parametrize(
    "written",
    [
        GERMAN,
        "DE44 5001 0517 5407 3249 31",
        "de44-5001-0517-5407-3249-31",
        "DE44\u00a05001\u00a00517\u00a05407\u00a03249\u00a031",
        "ＤＥ44 5001 0517 5407 3249 31",
        "D\u200bE44 5001\u200b0517 5407 3249 31",
        "IBAN: DE44.5001.0517.5407.3249.31 BIC: ABCDDEFFXXX",
        "pay to no 12 DE44 5001 0517 5407 3249 31 today",
    ],
)
def test_every_spelling_of_an_iban_has_one_form(written: str) -> None:
    assert found(f"Please pay to {written}, thank you.") == [GERMAN]


@pytest.mark.parametrize(
    "number",
    ["NL91ABNA0417164300", "FR1420041010050500013M02606", "NO9386011117947", "MT84MALT011000012345MTLCAST001S"],
)
def test_ibans_of_other_countries_are_found(number: str) -> None:
    assert found(f"IBAN {number}.") == [number]


def test_a_british_account_is_the_same_with_and_without_its_iban() -> None:
    assert found("IBAN GB82 WEST 1234 5698 7654 32") == ["GB:12345698765432"]
    assert found("Sort code: 12-34-56, account number 98765432") == ["GB:12345698765432"]
    assert found("Account no. 9876 5432\nSort code 123456") == ["GB:12345698765432"]


def test_an_american_account_needs_a_right_routing_number() -> None:
    assert found("ABA routing 021000021, account number 1234-56789") == ["US:021000021:123456789"]
    assert found("Account: 123456789. Routing number: 021000021") == ["US:021000021:123456789"]
    assert found("ABA routing 021000022, account number 123456789") == []
    assert not is_routing_number("000000000")


@pytest.mark.parametrize(
    "text",
    [
        "DE13 5001 0517 5407 3249 31",  # the check digits are wrong
        "DE44 5001 0517 5407 3249",
        "order no 12 5001 0517 5407",
        "as 20 people came to the meeting about everything",
        "Invoice 2026-000123 of 01.03.2026, customer 12345678",
    ],
)
def test_other_numbers_are_no_accounts(text: str) -> None:
    assert found(text) == []


def test_several_accounts_are_found_once_each() -> None:
    assert found(f"{GERMAN} or NL91ABNA0417164300, not {GERMAN}") == [GERMAN, "NL91ABNA0417164300"]


@given(st.text(max_size=300))
def test_any_text_can_be_searched(text: str) -> None:
    for account in found(text):
        assert account[:2].isalpha()


def test_a_long_hostile_text_takes_a_moment() -> None:
    started = time.process_time()
    assert found(" ".join(f"de{number % 90 + 10}5001051754" for number in range(50_000))) == []
    assert time.process_time() - started < 2


def test_a_changed_digit_is_noticed() -> None:
    for at in range(4, len(GERMAN)):
        changed = GERMAN[:at] + str((int(GERMAN[at]) + 1) % 10) + GERMAN[at + 1 :]
        assert not is_iban(changed)
