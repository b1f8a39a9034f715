"""Protected people: a display name and the address that may use it.

Security: compares names that senders choose; accents, case, order and invisible characters do not change the key.
"""

import re
from typing import NamedTuple
from unicodedata import combining, normalize

from mailwarden.errors import InvalidEntry
from mailwarden.lists.kinds.kind import Kind, fold, refang
from mailwarden.lists.kinds.senders import read_address

MAX_NAME = 200
_WORD = re.compile(r"[^\W_]+")
_DRESS = str.maketrans("", "", '"\\')


class Person(NamedTuple):
    name: str
    address: str


def read_person(text: str) -> str:
    """Return `Display Name <address>` without quotes and with single spaces, or raise InvalidEntry."""
    name, bracket, address = text.rpartition("<")
    if not bracket or not address.endswith(">"):
        raise InvalidEntry("A person is written `Display Name <address>`.")
    name = normalize("NFC", " ".join(name.translate(_DRESS).split()))
    if "<" in name or ">" in name or not key_of_name(name):
        raise InvalidEntry("Before the address comes a name: letters or digits, no angle brackets.")
    if len(name) > MAX_NAME:
        raise InvalidEntry(f"A name has at most {MAX_NAME} characters.")
    address = refang(address[:-1].strip())
    if "@" not in address:
        raise InvalidEntry("Between the angle brackets comes an address.")
    return f"{name} <{read_address(address)}>"


def person_of(entry: str) -> Person:
    """Take an entry apart again."""
    name, _, address = entry.rpartition(" <")
    return Person(name, address[:-1])


def key_of_name(name: str) -> str:
    """Return what all spellings of a name share: its words without accents and case, in alphabetical order.

    So `Smith, José` and `jose smith` are one name.
    """
    plain = fold(name.translate(_DRESS))
    if not plain.isascii():
        plain = "".join(sign for sign in normalize("NFKD", plain) if not combining(sign))
    return " ".join(sorted(_WORD.findall(plain)))


def key_of_person(entry: str) -> str:
    return key_of_name(person_of(entry).name)


def candidates_for_name(name: str) -> list[str]:
    """Return the keys of the kind `person` for a display name; the caller checks the address."""
    key = key_of_name(name[:1_000])
    return [key] if key else []


def person_specificity(entry: str) -> int:
    del entry
    return 1


PERSON = Kind(
    name="person",
    form="`Display Name <address>`: the protected name and its legitimate address.",
    examples=(
        ("Ada Byron <ada@example.com>", "Ada Byron <ada@example.com>"),
        ('"Byron, Ada"  <Ada@Example.com>', "Byron, Ada <ada@example.com>"),
    ),
    read=read_person,
    specificity=person_specificity,
    key=key_of_person,
)
