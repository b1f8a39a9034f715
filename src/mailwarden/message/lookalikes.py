"""Names as a reader sees them: the registered label of a domain, its skeleton, and names one edit apart."""

from unicodedata import combining, normalize

from mailwarden.message.urls import registrable_domain

# Letters, and the digits and characters of other alphabets that look like them.
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


def label_of(domain: str) -> str:
    """Return the registered label, decoded from Punycode: `shop.example.co.uk` -> `example`."""
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


def read_as_latin(name: str) -> str:
    """Return a name with the letters of other alphabets as a reader of Latin takes them."""
    return name.lower().translate(_FOREIGN)


def one_edit(left: str, right: str) -> bool:
    """Return whether the texts differ by one inserted, deleted or replaced letter, or by two swapped neighbours."""
    if left == right or abs(len(left) - len(right)) > 1:
        return False
    start = next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    left, right = left[start:], right[start:]
    exchanged = len(left) > 1 and left[1::-1] == right[:2] and left[2:] == right[2:]
    return exchanged or left[1:] == right or left == right[1:] or left[1:] == right[1:]
