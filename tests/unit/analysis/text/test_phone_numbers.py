"""Telephone numbers are found as they are written in many countries; sums, dates and accounts are none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.analysis.text.folding import fold
from mailwarden.analysis.text.phone_numbers import find_phone


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("Call +1 (888) 555-0143 now", "+1 (888) 555-0143"),
        ("Rufen Sie uns an: 0800 123 4567.", "0800 123 4567"),
        ("Hotline: (030) 555 01 43", "(030) 555 01 43"),
        ("erreichbar unter 07361 123-400", "07361 123-400"),
        ("unsere Nummer ist +49 30 5557 0143.", "+49 30 5557 0143"),
        ("+49 (0) 711 4960100", "+49 (0) 711 4960100"),
        ("appelez-nous au 04 79 55 01 43", "04 79 55 01 43"),
        ("joignable au 0 805 98 76 54", "0 805 98 76 54"),
        ("llámenos al 91 555 01 43", "91 555 01 43"),
        ("número gratuito: 900 123 456", "900 123 456"),
        ("il numero verde 800 123 456", "800 123 456"),
        ("chiamarci allo 031 555 0143", "031 555 0143"),
        ("ligue 253 555 014", "253 555 014"),
        ("ligue para o +351 21 555 01 43", "+351 21 555 01 43"),
        ("bel dan 0800-1234567", "0800-1234567"),
    ],
)
def test_a_number_is_found_as_it_is_written(text, number):
    assert find_phone(fold(text)) == number


@pytest.mark.parametrize(
    "text",
    [
        "Rechnungsnummer 4471 vom 12.11.2026",
        "la nomina al 31.12.2026",
        "au 01.12.2026 au plus tard",
        "der Betrag von 1.240,00 EUR bis 30.11.2026",
        "IBAN DE89 3704 0044 0532 0130 00",
        "500 000 000 personas, 200 000 al dia",
        "Telefon auf Anfrage",
        "Sendung 00340434161094042557",
    ],
)
def test_other_figures_are_no_numbers(text):
    assert find_phone(fold(text)) == ""


@given(st.text(alphabet="+0123456789 ()-./telrufau", max_size=200))
def test_no_text_breaks_it(text):
    assert find_phone(text) in text
