"""Text folded for comparing: lower case without accents, wide forms, invisible characters and runs of white space.

Security: works on hostile text; one pass, the text is cut by the caller.
"""

import unicodedata

# Invisible characters: soft hyphen, zero widths, direction marks, fillers, variation selectors.
INVISIBLE = frozenset(
    {0x00AD, 0x034F, 0x061C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180E, 0x2800, 0x3164, 0xFEFF, 0xFFA0}
    | {*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), *range(0xFE00, 0xFE10)}
)
_LIKE = dict.fromkeys(map(chr, INVISIBLE), "") | {
    "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "-", "\u0451": "\u0435",
    "\xdf": "ss",
}  # fmt: skip
_FEW = 40


def fold(text: str) -> str:
    """Return a text folded for comparison; confusable characters of other scripts stay."""
    text = text.lower()
    if not text.isascii():
        odd = {sign: _LIKE[sign] for sign in set(text) if sign in _LIKE}
        text = unicodedata.normalize("NFKD", _replace(text, odd))
        text = _replace(text, {sign: "" for sign in set(text) if unicodedata.combining(sign)})
    return " ".join(text.split())


def _replace(text: str, signs: dict[str, str]) -> str:
    """Replace characters; a few are replaced one after the other, which is much faster than `translate`."""
    if len(signs) > _FEW:
        return text.translate({ord(sign): like for sign, like in signs.items()})
    for sign, like in signs.items():
        text = text.replace(sign, like)
    return text
