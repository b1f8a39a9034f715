"""Names that nobody chose: letters without vowels, letters among digits, cases that change at random.

Security: works on names that strangers chose; one pass over a name that is cut.
"""

import re

LONGEST = 64  # not inspection: no label of a name is longer (RFC 1035 section 2.3.4)
MIN_LETTERS = 5  # `xxxxxxxx` is a name left out, not one thrown
_NO_VOWELS = re.compile(r"[bcdfghjklmnpqrstvwxz]{6}")  # longer than in `schwarz`, `angstschreie` and their like
_NO_VOWELS_AT_ALL = re.compile(r"[bcdfghjklmnpqrstvwxz]{7}")
_HONEST_RUNS = re.compile(
    r"schtsch|tsch|schr|schm|schl|schw|sch|ngst|rchst|ghtsh|ngsth|nsch|mpls|tch|ght|ngs|rst|nds|rth"
)
_DIGIT_BORDERS = re.compile(r"(?<=[a-z])(?=\d)|(?<=\d)(?=[a-z])")
_CASE_BORDERS = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WORD = re.compile(r"[A-Za-z0-9]{7,64}")


def is_random_label(label: str) -> bool:
    """Tell whether a label of a domain looks thrown rather than chosen."""
    label = label[:LONGEST].lower()
    if label.startswith("xn--"):
        return False
    for word in label.split("-"):
        if len(word) >= 7 and _NO_VOWELS.search(_HONEST_RUNS.sub("a", word)):
            return True
        if len(word) >= 6 and len(_DIGIT_BORDERS.findall(word)) >= 3:
            return True
    return False


def is_random_local(local: str) -> bool:
    """Tell whether the part before the at sign looks thrown rather than chosen."""
    if len(local) > LONGEST or not _WORD.fullmatch(local) or len(set(local.lower())) < MIN_LETTERS:
        return False  # what has separators is put together by a program, as codes of mailing services are
    if len(_CASE_BORDERS.findall(local)) >= 2 and _has_no_rhythm(local):
        return True
    lower = local.lower()
    return bool(_NO_VOWELS_AT_ALL.search(_HONEST_RUNS.sub("a", lower))) or len(_DIGIT_BORDERS.findall(lower)) >= 4


def _has_no_rhythm(word: str) -> bool:
    """Tell `MvSSrjf` from `JohnMcDonald`: whether the parts between capitals are mostly no syllables."""
    parts = [part for part in re.split(r"(?=[A-Z])", word) if part]
    return sum(1 for part in parts if len(part) < 3 or not re.search(r"[aeiouy]", part.lower())) * 2 > len(parts)
