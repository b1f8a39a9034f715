"""Makes a near duplicate of a message, as one campaign sends it to the next recipient.

It changes: the recipient's name and address, the sender's address and its domain, every number, the tokens in paths and
queries of links, and the wording (one long word of WORDING is replaced or left out).
"""

import random
import re
from email import message_from_bytes, policy
from email.errors import MessageError
from email.message import EmailMessage

WORDING = 25  # words, of which one is changed
NAMES = ("Ann North", "Bo Svensson", "Carla Ruiz", "Dmitri Orlov", "Eva Lang", "Finn Weber", "Gina Rossi", "Hugo Petit")
_SYNONYMS = ("simply", "really", "certain", "today", "please", "several", "notice", "current")
_MARKUP = re.compile(r"(<[^<>]*>)")
_NUMBER = re.compile(r"\d+")
_URL = re.compile(r"(?i)\bhttps?://[^\s\"'<>]+")
_TOKEN = re.compile(r"(?<=[/=&?_.-])(?=[A-Za-z]*\d)[A-Za-z0-9]{5,}|(?<==)[A-Za-z0-9_-]{8,}")
_WORD = re.compile(r"(?<![\w@/.&;-])[^\W\d_]{4,}(?![\w@/.;-])")


def make_near_duplicate(raw: bytes, seed: int) -> bytes | None:
    """Return another message of the same campaign; None if the standard library cannot read or write the message."""
    chance = random.Random(seed)  # noqa: S311 - repeatable, not a secret
    try:
        message = message_from_bytes(raw, policy=policy.SMTP)
        name = chance.choice(NAMES)
        _change_headers(message, name, chance)
        for part in message.walk():
            if part.get_content_type() in ("text/plain", "text/html") and not part.get_filename():
                _change_text(part, name, chance)
        return message.as_bytes()
    except (MessageError, LookupError, ValueError, AttributeError, TypeError, AssertionError, RecursionError):
        return None  # broken messages of the corpus raise all of these in the standard library


def change_text(text: str, chance: random.Random) -> str:
    """Return a text with other numbers, tokens and a few other words."""
    text = _URL.sub(lambda found: _TOKEN.sub(lambda token: _random_token(token[0], chance), found[0]), text)
    pieces = _URL.split(text)
    links = _URL.findall(text)
    changed = [_WORD.sub(lambda word: _change_word(word[0], chance), _new_numbers(piece, chance)) for piece in pieces]
    return "".join(a + b for a, b in zip(changed, [*links, ""], strict=True))


def _change_headers(message: EmailMessage, name: str, chance: random.Random) -> None:
    local = name.lower().replace(" ", ".")
    _replace(message, "To", f"{name} <{local}@company{chance.randrange(10, 99)}.example>")
    _replace(message, "From", f"Service <mail{chance.randrange(1000)}@sender{chance.randrange(10**6)}.example>")
    _replace(message, "Message-ID", f"<{chance.randrange(10**12)}@sender.example>")
    for field in ("Reply-To", "Sender", "Return-Path", "Cc"):
        del message[field]
    subject = str(message.get("Subject", "")).replace("\n", " ").replace("\r", " ")
    _replace(message, "Subject", _new_numbers(subject, chance))


def _replace(message: EmailMessage, field: str, value: str) -> None:
    del message[field]
    message[field] = value


def _change_text(part: EmailMessage, name: str, chance: random.Random) -> None:
    text = str(part.get_content())
    if part.get_content_type() == "text/html":
        pieces = _MARKUP.split(text)
        pieces[1::2] = [_new_tokens(piece, chance) for piece in pieces[1::2]]
        pieces[0::2] = [change_text(piece, chance) for piece in pieces[0::2]]
        part.set_content("".join(pieces), subtype="html")
    else:
        part.set_content(f"{name}\n\n{change_text(text, chance)}")


def _new_tokens(markup: str, chance: random.Random) -> str:
    return _URL.sub(lambda found: _TOKEN.sub(lambda token: _random_token(token[0], chance), found[0]), markup)


def _new_numbers(text: str, chance: random.Random) -> str:
    return _NUMBER.sub(lambda found: "".join(chance.choices("0123456789", k=len(found[0]))), text)


def _random_token(token: str, chance: random.Random) -> str:
    return "".join(chance.choices("abcdefghijkmnpqrstuvwxyz23456789", k=len(token)))


def _change_word(word: str, chance: random.Random) -> str:
    if chance.randrange(WORDING):
        return word
    return chance.choice(("", *_SYNONYMS))
