"""Near duplicates differ in recipient, sender, numbers and tokens, and in few words."""

import random
from email import message_from_bytes, policy
from email.message import EmailMessage

from workshop.evaluate.near_duplicates import change_text, make_near_duplicate

TEXT = "Please pay invoice 4711 of your order at https://shop.example/pay/a7f3k9?token=abcdefgh12 until Friday evening."


def test_numbers_and_tokens_change_and_most_words_stay():
    changed = change_text(TEXT, random.Random(1))
    assert "4711" not in changed
    assert "a7f3k9" not in changed
    assert "https://shop.example/pay/" in changed
    assert len(set(TEXT.split()) & set(changed.split())) >= len(TEXT.split()) - 5


def test_the_message_gets_another_sender_and_recipient():
    made = EmailMessage()
    made["From"], made["To"], made["Subject"] = "a@one.example", "b@two.example", "Invoice 4711"
    made.set_content(TEXT)
    varied = make_near_duplicate(made.as_bytes(), 7)
    assert varied is not None
    assert varied == make_near_duplicate(made.as_bytes(), 7), "repeatable"
    message = message_from_bytes(varied, policy=policy.default)
    assert "one.example" not in message["From"]
    assert "two.example" not in message["To"]
    assert message["Subject"].startswith("Invoice")
