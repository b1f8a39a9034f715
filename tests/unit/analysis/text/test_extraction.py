"""Passwords, phone numbers and Bitcoin addresses in texts, and words that are none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.analysis.text.extraction import find_passwords, find_phone
from mailwarden.analysis.text.folding import fold
from mailwarden.analysis.view import View
from mailwarden.message.limits import LIMITS
from mailwarden.message.parser import parse_message


@pytest.mark.parametrize(
    ("text", "password"),
    [
        ("Password: 4471", "4471"),
        ("the archive password is Autumn26.", "Autumn26"),
        ("Passwort zum Öffnen: geheim7", "geheim7"),
        ("Kennwort = x9x9", "x9x9"),
        ("Mot de passe : soleil", "soleil"),
        ('PW - "abc123"', "abc123"),
        ("пароль: 777", "777"),
        ("Password for the file: 1234", "1234"),
        ("Das Passwort lautet 7742", "7742"),
        ("La password per aprire il file è 7742", "7742"),
        ("Hasło do archiwum: 7742", "7742"),
        ("Пароль от архива: 7742", "7742"),
        ("Код доступу: 7742", "7742"),
        ("Lösenordet är 7742", "7742"),
        ("解凍パスワードは7742です", "7742"),
        ("解压密码：7742", "7742"),
        ("密码是7742。", "7742"),
        ("كلمة المرور: 7742", "7742"),
        ("Κωδικός: 7742", "7742"),
        ("Mật khẩu: 7742", "7742"),
        ("รหัสผ่าน: 7742", "7742"),
        ("Code d'ouverture du fichier : 7742", "7742"),
        ("Archive pass - 7742", "7742"),
        ("PIN code for the attachment: 7742", "7742"),
        ("Use 7742 to open the file", "7742"),
    ],
)
def test_a_stated_password_is_found(text, password):
    assert find_passwords(text) == (password,)


@pytest.mark.parametrize(
    "text",
    [
        "Your password is expired.", "The password is sent separately.", "password is your date of birth",
        "Forgot password? Visit us.", "the password is not in this message", "Password: https://north.example/reset",
        "Your order code: 7742", "Shopping: 7742", "Use the form to open a ticket", "Per 2026 to open the books",
    ],
)  # fmt: skip
def test_text_without_a_password_yields_none(text):
    assert find_passwords(text) == ()


def test_as_many_passwords_are_kept_as_are_tried():
    assert len(find_passwords(" ".join(f"password: p{n}" for n in range(5_000)))) == LIMITS.passwords


def test_words_near_a_password_and_common_ones_may_open_a_file():
    page = b"<p>The archive is <b>protected</b>.</p><table><tr><td>Password</td><td>Sommer-26!</td></tr></table>"
    raw = b"From: a@north.example\r\nSubject: code 9931\r\nContent-Type: text/html\r\n\r\n" + page
    found = tuple(View(parse_message(raw))._password_candidates())
    assert {"Sommer-26!", "9931", "infected", "1234"} <= set(found)


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
        ("Telefoonnummer 020 555 0123", "020 555 0123"),
        ("zadzwoń: 22 555 01 23", "22 555 01 23"),
        ("infolinia 800 555 012", "800 555 012"),
        ("Bizi arayın: 0850 555 01 23", "0850 555 01 23"),
        ("+90 (212) 555 01 23", "+90 (212) 555 01 23"),
        ("お電話ください：0120-555-012", "0120-555-012"),
        ("フリーダイヤル 0120-555-012", "0120-555-012"),
        ("+81 3-5550-1234", "+81 3-5550-1234"),
        ("call 0800 555 0123", "0800 555 0123"),
        ("+1\u2022888\u2022555\u20220142", "+1\u2022888\u2022555\u20220142"),
        ("ring 1\u2011888\u2011555\u20110142", "1\u2010888\u2010555\u20100142"),
        ("call 8 8 8 - 5 5 5 - 0 1 4 2.", "8 8 8 - 5 5 5 - 0 1 4 2"),
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
        "numer faktury 123 456 789",
        "1 2 3 4 5 6 7 8 9 10 11 12",
        "version 1.2.3.4.5.6.7.8.9.10.11",
        "call for papers 2026-2027",
        "phone 15 with 256 GB for 1299",
        "order number 123 456 789",
    ],
)
def test_other_figures_are_no_numbers(text):
    assert find_phone(fold(text)) == ""


@given(st.text(alphabet="+0123456789 ()-./telrufau", max_size=200))
def test_no_text_breaks_it(text):
    assert find_phone(text) in text
