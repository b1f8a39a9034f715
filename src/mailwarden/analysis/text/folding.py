"""Folds text for comparison: lower case without accents, wide forms, invisible characters and runs of white space.

Security: works on hostile text; one pass, the text is cut by the caller.
"""

import unicodedata

# Invisible characters: soft hyphen, zero widths, direction marks, fillers, variation selectors.
INVISIBLE = frozenset(
    {0x00AD, 0x034F, 0x061C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180E, 0x2800, 0x3164, 0xFEFF, 0xFFA0}
    | {*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), *range(0xFE00, 0xFE10)}
)
# Quotation marks, dashes, and letters without an accent to drop, which many people type as plain l, i, o and d.
_LIKE = dict.fromkeys(map(chr, INVISIBLE), "") | {
    "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "-", "\u0451": "\u0435",
    "\xdf": "ss", "\u0142": "l", "\u0131": "i", "\xf8": "o", "\u0111": "d",
}  # fmt: skip
_FEW = 40


def fold(text: str) -> str:
    """Return a text folded for comparison; confusable characters of other scripts stay."""
    text = text.lower()
    if not text.isascii():
        odd = {character: _LIKE[character] for character in set(text) if character in _LIKE}
        text = unicodedata.normalize("NFKD", _replace(text, odd))
        text = _replace(text, {character: "" for character in set(text) if unicodedata.combining(character)})
    return " ".join(text.split())


def _replace(text: str, replacements: dict[str, str]) -> str:
    """Replace characters; a few are replaced one after the other, which is much faster than `translate`."""
    if len(replacements) > _FEW:
        return text.translate({ord(character): like for character, like in replacements.items()})
    for character, like in replacements.items():
        text = text.replace(character, like)
    return text
