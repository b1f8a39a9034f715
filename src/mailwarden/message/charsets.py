"""Charset labels as mail clients resolve them, and every text that a client may decode from the same bytes.

Security: works on hostile bytes; only codecs of this list run, so that no label reaches a codec such as
unicode_escape, punycode or zip. Decoding never fails, and one content has at most a handful of readings.
"""

import re
from collections.abc import Iterable, Iterator
from encodings.aliases import aliases
from functools import lru_cache

# Python's names of the codecs that a label may select.
_CODECS = frozenset(
    (  # noqa: SIM905 - as a list of quoted words it would fill the screen
        "ascii utf_8 utf_7 utf_16 utf_16_le utf_16_be utf_32 utf_32_le utf_32_be latin_1 "
        "iso8859_2 iso8859_3 iso8859_4 iso8859_5 iso8859_6 iso8859_7 iso8859_8 iso8859_9 iso8859_10 iso8859_11 "
        "iso8859_13 iso8859_14 iso8859_15 iso8859_16 cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 "
        "cp437 cp720 cp737 cp775 cp850 cp852 cp855 cp857 cp858 cp860 cp861 cp862 cp863 cp864 cp865 cp866 cp869 cp874 "
        "cp932 cp949 cp950 cp1125 cp1006 koi8_r koi8_t koi8_u kz1048 ptcp154 hp_roman8 tis_620 "
        "mac_roman mac_cyrillic mac_greek mac_iceland mac_latin2 mac_turkish mac_croatian mac_romanian mac_farsi "
        "mac_arabic gb2312 gbk gb18030 hz big5 big5hkscs euc_jp euc_jis_2004 euc_jisx0213 euc_kr johab shift_jis "
        "shift_jis_2004 shift_jisx0213 iso2022_jp iso2022_jp_1 iso2022_jp_2 iso2022_jp_2004 iso2022_jp_3 "
        "iso2022_jp_ext iso2022_kr cp037 cp273 cp424 cp500 cp875 cp1026 cp1140"
    ).split()
)
# A label says one thing and clients mean the superset (WHATWG Encoding, 4.2).
_SUPERSETS = {
    "latin_1": "cp1252", "gb2312": "gb18030", "gbk": "gb18030", "euc_kr": "cp949", "shift_jis": "cp932",
    "iso8859_9": "cp1254", "iso8859_11": "cp874", "tis_620": "cp874", "big5": "big5hkscs",
    "iso2022_jp": "iso2022_jp_ext", "iso2022_jp_1": "iso2022_jp_ext", "iso2022_jp_2": "iso2022_jp_ext",
}  # fmt: skip
_ISO_2022_CN, _CP1047, _LATIN_EBCDIC = "iso2022_cn", "cp1047", "cp037"  # the first two are decoded here
# Labels that Python has under another name or not at all.
_LABELS = {
    "euc_tw": "big5hkscs", "viscii": "cp1258", "x_sjis": "cp932", "x_gbk": "gb18030", "x_euc_jp": "euc_jp",
    "x_euc_kr": "cp949", "x_big5": "big5hkscs", "x_x_big5": "big5hkscs", "cn_big5": "big5hkscs",
    "cn_gb": "gb18030", "gb_2312": "gb18030", "gb_2312_80": "gb18030", "windows_936": "gb18030",
    "windows_949": "cp949", "windows_950": "big5hkscs", "windows_932": "cp932", "windows_31j": "cp932",
    "ks_c_5601": "cp949", "hz_gb_2312": "hz", "hz_gb2312": "hz", "chinese": "gb18030", "korean": "cp949",
    "iso_2022_cn": _ISO_2022_CN, "iso_2022_cn_ext": _ISO_2022_CN, "csiso2022cn": _ISO_2022_CN,
    "unicode": "utf_16", "ucs_2": "utf_16", "ucs2": "utf_16", "csunicode": "utf_16", "iso_10646_ucs_2": "utf_16",
    "ucs_2le": "utf_16_le", "ucs_2be": "utf_16_be", "ucs_4": "utf_32", "ucs4": "utf_32", "iso_10646_ucs_4": "utf_32",
    "unicodefeff": "utf_16_le", "unicodefffe": "utf_16_be", "utf16le": "utf_16_le", "utf16be": "utf_16_be",
    "utf32le": "utf_32_le", "utf32be": "utf_32_be", "x_imap4_modified_utf7": "utf_7", "x_unicode_2_0_utf_7": "utf_7",
    "csunicode11utf7": "utf_7", "csutf7": "utf_7", "unicode_2_0_utf_7": "utf_7", "utf7_imap": "utf_7",
    "unicode11utf8": "utf_8", "unicode20utf8": "utf_8", "x_unicode20utf8": "utf_8", "cesu_8": "utf_8",
    "utf_8_mac": "utf_8", "utf8mb4": "utf_8", "x_unknown": "utf_8", "unknown_8bit": "utf_8", "unknown": "utf_8",
    "default": "utf_8", "none": "utf_8", "x_user_defined": "cp1252", "binary": "cp1252", "8bit": "cp1252",
    "7bit": "ascii", "ansi": "cp1252", "x_ansi": "cp1252", "x_cp1252": "cp1252", "x_mac_roman": "mac_roman",
    "x_mac_cyrillic": "mac_cyrillic", "x_mac_ukrainian": "mac_cyrillic", "x_mac_greek": "mac_greek",
    "x_mac_turkish": "mac_turkish", "x_mac_ce": "mac_latin2", "x_roman8": "hp_roman8", "dos_866": "cp866",
    "dos_874": "cp874", "win_1251": "cp1251", "koi": "koi8_r", "koi8": "koi8_r", "koi8_ru": "koi8_u",
    "logical": "iso8859_8", "visual": "iso8859_8", "iso_8859_8_i": "iso8859_8", "iso_8859_8_e": "iso8859_8",
    "iso_8859_6_i": "iso8859_6", "iso_8859_6_e": "iso8859_6", "sun_eu_greek": "iso8859_7", "dos_720": "cp720",
    "ibm1047": _CP1047, "cp1047": _CP1047, "1047": _CP1047, "ibm_1047": _CP1047,
    "ebcdic_cp_us": "cp037", "ebcdic_us": "cp037", "ebcdic": "cp037", "ebcdic_int": "cp500",
    "ebcdic_international": "cp500",
}  # fmt: skip
# Code pages of EBCDIC that Python lacks: letters, digits, tags and URLs are the same in all of them.
_OTHER_EBCDIC = re.compile(
    r"(?:ibm|cp)_?(?:0?27\d|28\d|29\d|03\d|871|838|870|880|905|924|918|42[0-3]|1025|1112|112[23]|113\d|114\d|115\d|836)"
    r"|(?:x_)?ebcdic_[a-z_]{2,30}"
)
_DROPPED_PREFIX = re.compile(r"^(?:x_)?(?:cs)?(?:ibm_?|cp_?|win(?:dows)?_?|ms_?)(?=\d{3,5}$)")
_NOT_IN_LABEL = re.compile(r"[^a-z0-9]+")

_EBCDIC = frozenset({"cp037", "cp273", "cp424", "cp500", "cp875", "cp1026", "cp1140", _CP1047})
# Codecs in which ASCII bytes may stand for something else, so that tags and links hide.
_STATEFUL = _EBCDIC | {
    "utf_7", "utf_16", "utf_16_le", "utf_16_be", "utf_32", "utf_32_le", "utf_32_be", "hz", "iso2022_jp_2004",
    "iso2022_jp_3", "iso2022_jp_ext", "iso2022_kr", _ISO_2022_CN,
}  # fmt: skip
_MULTIBYTE = frozenset(
    {"gb18030", "cp949", "cp932", "cp950", "big5hkscs", "euc_jp", "euc_jis_2004", "euc_jisx0213", "johab",
     "shift_jis_2004", "shift_jisx0213"}
)  # fmt: skip
_BOMS = (
    (b"\xef\xbb\xbf", "utf_8"),
    (b"\xff\xfe\x00\x00", "utf_32_le"),
    (b"\x00\x00\xfe\xff", "utf_32_be"),
    (b"\xff\xfe", "utf_16_le"),
    (b"\xfe\xff", "utf_16_be"),
    (b"+/v8", "utf_7"),
    (b"+/v9", "utf_7"),
    (b"+/v+", "utf_7"),
    (b"+/v/", "utf_7"),
)
# `<` or `http` in UTF-7, which no ordinary text holds.
_UTF_7 = re.compile(rb"\+A(?:Dw|D[0-9A-Za-z+/]{1,9}A8|GgAdAB0AHA)")
_ESCAPES = re.compile(rb"\x1b(?:\$[()*+,\-./]?[0-~]|[(),\-./*+][!-~]|[NOno]|\.[A-F])|[\x0e\x0f]")
_SHIFTS = (b"\x1b", b"\x0e", b"\x0f")
_IN_PAGE = re.compile(
    rb"<\s?meta[^>]{0,1000}?charset\s{0,9}=\s{0,9}[\"']?\s{0,9}([A-Za-z0-9_.:+-]{1,40})"
    rb"|<\?xml[^>]{0,300}?encoding\s{0,9}=\s{0,9}[\"']([A-Za-z0-9_.:+-]{1,40})",
    re.IGNORECASE,
)
_PRESCANNED = 8_192  # bytes of a page in which clients look for its charset; the standard asks for 1,024
_READABLE = re.compile(rb"[A-Za-z0-9 \r\n\t]+")
_SAMPLE = 16_384
_SURROGATE = re.compile("[\ud800-\udfff]")
# cp1047 is cp037 with six characters in other places.
_FROM_CP1047 = bytes.maketrans(b"\xad\xbd\x5f\xb0\xba\xbb", b"\xba\xbb\xb0\x5f\xad\xbd")
_CN_RUN = re.compile(rb"\x1b\$\)([A-Z])|\x1b\$[*+]([A-Z])|(\x0e[^\x0f\n]*)|\x0f|\x1bN(..)")


@lru_cache(maxsize=512)
def codec_for(label: str) -> str:
    """Return the codec for a charset label, or "" where clients do not agree on what the label means."""
    if len(label) > 60:
        return ""
    name = _NOT_IN_LABEL.sub("_", label.strip().lower().partition("*")[0]).strip("_")
    if found := _LABELS.get(name):
        return found
    short = _DROPPED_PREFIX.sub("cp", name)
    for each in (name, aliases.get(name, ""), short, aliases.get(short, ""), name.replace("_", "")):
        if each in _CODECS:
            return _SUPERSETS.get(each, each)
    squeezed = aliases.get(name.replace("_", ""), "")
    if squeezed in _CODECS:
        return _SUPERSETS.get(squeezed, squeezed)
    return _LATIN_EBCDIC if _OTHER_EBCDIC.fullmatch(name) else ""


def decode_text(content: bytes, label: str) -> str:
    """Decode by the label if it is on the list; else as UTF-8 if that fits, else as Windows-1252. Never fails."""
    codec = codec_for(label) if label else ""
    if codec in ("", "ascii", "utf_8"):
        return _guess(content)
    return _decode(content, codec)


def readings(content: bytes, labels: Iterable[str] = (), *, page: bool = False, saved: bool = False) -> tuple[str, ...]:
    """Return every text that some client decodes from these bytes, the most likely first.

    `labels` are the charset parameters of the part; `page` looks for a label inside of the content as well, and
    `saved` is a file, which a browser opens without the headers of the message.
    """
    declared = [codec for label in labels if label and (codec := codec_for(label))]
    if content.isascii() and not _is_shifting(content, declared) and not (page and _names_stateful(content)):
        return (content.decode("ascii"),)
    inside = list(_labels_inside(content)) if page else []
    found: dict[str, None] = {}
    for codec in _plausible(content, declared, inside, saved=saved):
        text = _guess(content) if codec in ("", "ascii", "utf_8") else _decode(content, codec)
        found[text] = None
        if "\0" in text:  # some clients drop it, and others show a replacement
            found[text.replace("\0", "")] = None
    if any(shift in content for shift in _SHIFTS) and (plain := _ESCAPES.sub(b"", content)) != content:
        found[_guess(plain)] = None  # a client that knows the escape sequences, but not their charset
    return tuple(found)


def unread_charset(content: bytes, labels: Iterable[str]) -> str:
    """Return the label if it is not supported and the bytes are not text without it; otherwise ""."""
    unknown = next((label for label in labels if label and not codec_for(label)), "")
    if not unknown or len(content) < 4:
        return ""
    if b"\x1b" not in content and _is_utf_8(content):
        return ""
    plain = sum(map(len, _READABLE.findall(content)))
    return "" if plain * 5 >= len(content) * 2 else unknown[:60]


def _is_shifting(content: bytes, declared: list[str]) -> bool:
    """Return whether ASCII bytes may encode other characters than ASCII."""
    if any(codec in _STATEFUL for codec in declared) or b"\0" in content:
        return True
    if any(shift in content for shift in _SHIFTS) or b"~{" in content:
        return True
    return (b"+A" in content and bool(_UTF_7.search(content))) or content.startswith(b"+/v")


def _names_stateful(content: bytes) -> bool:
    return any(codec in _STATEFUL for codec in _labels_inside(content))


def _labels_inside(content: bytes) -> Iterator[str]:
    """Yield the codecs that a page names itself (HTML 13.2.3.2, XML 4.3.3)."""
    head = content[:_PRESCANNED]  # not inspection: browsers look for a label in the first 1,024 bytes
    if b"charset" not in head.lower() and b"encoding" not in head:
        return
    for match in _IN_PAGE.finditer(head):
        if codec := codec_for((match[1] or match[2]).decode("ascii")):
            yield codec


def _plausible(content: bytes, declared: list[str], inside: list[str], *, saved: bool) -> Iterator[str]:
    """Yield the codecs that clients may use, the most likely first."""
    marked = next((codec for bom, codec in _BOMS if content.startswith(bom)), "")
    unwide = [codec for codec in inside if not codec.startswith(("utf_16", "utf_32"))]
    if marked:
        yield marked
    elif b"\0" in content and not any(codec.startswith("utf_") and codec in _STATEFUL for codec in declared):
        yield from _wide_by_zeros(content[:_SAMPLE])  # not inspection: a sample identifies a charset
    labels = [*unwide, *declared] if saved else declared
    yield from dict.fromkeys(labels)
    for codec in (f"{label}_be" for label in labels if label in ("utf_16", "utf_32") and not marked):
        yield codec  # RFC 2781, 4.3: big-endian where nothing says otherwise; clients take it for little-endian
    if not labels:
        yield ""
    # The header's label counts for a body in every client; one inside counts where it changes what is a tag.
    ordinary = _is_utf_8(content) and all(codec in ("utf_8", "ascii") for codec in declared)
    for codec in dict.fromkeys(unwide):
        if codec in _STATEFUL or (codec in _MULTIBYTE and not ordinary):
            yield codec
    if any(codec in _STATEFUL | _MULTIBYTE for codec in labels):
        yield ""  # a client that does not know the label
    yield from ("cp500", _CP1047) if _EBCDIC.intersection(declared) else ()
    yield from _detected(content)


def _detected(content: bytes) -> Iterator[str]:
    """Yield the codecs that clients detect by escape sequences, regardless of the label."""
    if content.isascii():
        if b"~{" in content:
            yield "hz"
        if _UTF_7.search(content):
            yield "utf_7"
    if b"\x1b$" in content or b"\x1b(" in content:
        yield from ("iso2022_jp_ext", "iso2022_kr")


def _wide_by_zeros(sample: bytes) -> Iterator[str]:
    """Yield the wide codecs that the positions of the zero bytes indicate."""
    quarter = len(sample) // 4 or 1
    zeros = [sample[offset::4].count(0) * 4 // (3 * quarter) for offset in range(4)]
    if zeros == [0, 1, 1, 1]:
        yield "utf_32_le"
    elif zeros == [1, 1, 1, 0]:
        yield "utf_32_be"
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if odd * 4 >= len(sample) // 2 and odd > 2 * even:
        yield "utf_16_le"
    elif even * 4 >= len(sample) // 2 and even > 2 * odd:
        yield "utf_16_be"


def _is_utf_8(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start >= len(content) - 3 and len(content) >= _SAMPLE  # a character cut off by the sample
    return True


def _decode(content: bytes, codec: str) -> str:
    if codec == _CP1047:
        return content.translate(_FROM_CP1047).decode("cp037", "replace").replace("\x85", "\n")
    if codec == _ISO_2022_CN:
        return _decode_iso_2022_cn(content)
    try:
        text = content.decode(codec, "replace")
    except (UnicodeError, LookupError):
        return _guess(content)
    if codec in _EBCDIC:
        return text.replace("\x85", "\n")
    if codec == "utf_7":  # Python's decoder lets half of a surrogate pair through, which no text has
        text = _SURROGATE.sub("\ufffd", text)
    return text.removeprefix("\ufeff")


def _decode_iso_2022_cn(content: bytes) -> str:
    """Decode RFC 1922: GB 2312 in shifts; characters of CNS 11643 are replaced, ASCII is complete."""
    pieces: list[str] = []
    last = 0
    is_gb = True
    for match in _CN_RUN.finditer(content):
        pieces.append(content[last : match.start()].decode("ascii", "replace"))
        last = match.end()
        if match[1]:
            is_gb = match[1] == b"A"
        elif match[3]:
            run = bytes(byte | 0x80 for byte in match[3][1:])
            pieces.append(run.decode("gb2312", "replace") if is_gb else "\ufffd" * (len(run) // 2))
        elif match[4]:
            pieces.append("\ufffd")
    pieces.append(content[last:].decode("ascii", "replace"))
    return "".join(pieces)


def _guess(content: bytes) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace")
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        # One stray byte in UTF-8 text must not turn all of it into Latin letters.
        if sum(1 for start in range(min(len(content), 4096)) if 0xC2 <= content[start] <= 0xF4) > 8:
            replaced = content.decode("utf-8", "replace")
            if replaced.count("\ufffd") * 20 < len(replaced):
                return replaced
        return content.decode("cp1252", "replace")
