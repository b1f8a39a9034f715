"""Text folded for comparing: lower case without accents, wide forms, invisible characters and runs of white space.

Security: works on hostile text; one pass, the text is cut by the caller.
"""

import unicodedata

# What is not seen, or only shapes what is: soft hyphen, zero widths, direction marks, fillers, variation selectors.
INVISIBLE = frozenset(
    {0x00AD, 0x034F, 0x061C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180E, 0x2800, 0x3164, 0xFEFF, 0xFFA0}
    | {*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), *range(0xFE00, 0xFE10)}
)
_DROPPED: dict[int, str | None] = dict.fromkeys(INVISIBLE) | {
    0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"', 0x2013: "-", 0x2014: "-", 0x0451: "\u0435", 0xDF: "ss"
}  # fmt: skip


def fold(text: str) -> str:
    """Return a text as it is compared; what looks alike in another script stays as it is."""
    if text.isascii():
        return " ".join(text.lower().split())
    plain = unicodedata.normalize("NFKD", text.lower().translate(_DROPPED))
    return " ".join("".join(sign for sign in plain if not unicodedata.combining(sign)).split())
