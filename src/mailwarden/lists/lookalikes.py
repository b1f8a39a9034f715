"""Which protected domain another one imitates: by signs that look alike, or by one letter more, less or other.

Security: compares names that strangers chose. A look-up costs a few steps, however many domains are protected.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from unicodedata import combining, normalize

from mailwarden.lists.kinds.domains import fold_domain
from mailwarden.lists.kinds.people import candidates_for_name
from mailwarden.message.urls import registrable_domain

MIN_EDITED = 5  # one letter is too much of a shorter name: `abc` and `abd` are two honest names
MIN_ALIKE = 3

# Letters, and the digits and signs of other alphabets that are read as them.
_ALIKE = {
    "a": "4аαɑ", "b": "ƅ", "c": "с", "d": "ԁđ", "e": "3еє", "g": "ɡ", "h": "һħн", "j": "ј", "k": "кқκ",
    "l": "1|iіїıӏłʟ", "m": "м", "o": "0оοø", "p": "рρ", "q": "ԛ", "r": "г", "s": "5$ѕ", "t": "тτ", "v": "νѵ",
    "w": "ԝω", "x": "хχ", "y": "уγ",
}  # fmt: skip
_LETTERS = str.maketrans({sign: letter for letter, signs in _ALIKE.items() for sign in signs})
# Of the letters of other alphabets alone, for names of people; they begin with capitals, and one looks alike only so.
_FOREIGN = str.maketrans(
    {sign: letter for letter, signs in _ALIKE.items() for sign in signs if not sign.isascii()} | {"в": "b"}
)
_PAIRS = (("rn", "m"), ("vv", "w"), ("cl", "d"))


class Lookalikes:
    """The protected domains of one scope, ready to be compared with."""

    def __init__(self, domains: Iterable[str]) -> None:
        self._protected = frozenset(domains)
        self._alike: dict[str, list[str]] = defaultdict(list)
        self._halves: dict[tuple[bool, str], list[str]] = defaultdict(list)
        for domain in sorted(self._protected):
            label = label_of(domain)
            self._alike[skeleton(label)].append(domain)
            if len(label) >= MIN_EDITED:
                for half in _halves(label, len(label)):
                    self._halves[half].append(domain)

    def find(self, domain: str) -> str:
        """Return the protected domain that this one imitates, or ""; a protected one imitates nobody."""
        domain = fold_domain(domain.strip())
        if not domain or domain in self._protected or registrable_domain(domain) in self._protected:
            return ""
        label = label_of(domain)
        if len(label) >= MIN_ALIKE:
            for protected in self._alike.get(skeleton(label), ()):
                if label_of(protected) != label:
                    return protected
        return next((protected for protected in self._near(label) if one_edit(label, label_of(protected))), "")

    def _near(self, label: str) -> Iterator[str]:
        """Yield those that share a half with the label: one edit leaves the other half of a name as it was."""
        if len(label) >= MIN_EDITED - 1:
            for length in (len(label) - 1, len(label), len(label) + 1):
                for half in _halves(label, length):
                    yield from self._halves.get(half, ())


def label_of(domain: str) -> str:
    """Return the label that somebody chose: `shop.example.co.uk` -> `example`, in the letters that people see."""
    label = (registrable_domain(domain) or domain).partition(".")[0]
    if label.startswith("xn--"):
        try:
            return label[4:].encode("ascii").decode("punycode")
        except UnicodeError:
            return label
    return label


def skeleton(label: str) -> str:
    """Return what all names that look like this one share."""
    if not label.isascii():
        label = "".join(sign for sign in normalize("NFKD", label.lower()) if not combining(sign))
    label = label.translate(_LETTERS).replace("-", "")
    for pair, letter in _PAIRS:
        label = label.replace(pair, letter)
    return label


def candidates_for_shown_name(name: str) -> list[str]:
    """Return the keys of the kind `person` for a name as it is written, without an address that is written behind it,
    and as a reader of Latin takes it for.
    """
    spellings = [name, name.partition("<")[0]] if "<" in name else [name]
    if not name.isascii():
        spellings += map(_read_as_latin, spellings[:])
    return [*dict.fromkeys(key for spelling in spellings for key in candidates_for_name(spelling))]


def _read_as_latin(name: str) -> str:
    return name.lower().translate(_FOREIGN)


def one_edit(left: str, right: str) -> bool:
    """Tell whether one letter more, less or other, or two neighbours exchanged, is all that differs."""
    if left == right or abs(len(left) - len(right)) > 1:
        return False
    start = next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    left, right = left[start:], right[start:]
    exchanged = len(left) > 1 and left[1::-1] == right[:2] and left[2:] == right[2:]
    return exchanged or left[1:] == right or left == right[1:] or left[1:] == right[1:]


def _halves(label: str, length: int) -> tuple[tuple[bool, str], tuple[bool, str]]:
    """Return the first and the last half that a name of this length shares with the label."""
    size = (length - 1) // 2
    return (False, label[:size]), (True, label[-size:])
