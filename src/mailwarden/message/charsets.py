"""Which charsets a message may name, and how bytes become text without ever failing.

Security: works on hostile bytes; only codecs of this list run, so that no label reaches a codec such as
unicode_escape, punycode or zip.
"""

from functools import lru_cache

_ALLOWED = """
ascii us-ascii ansi_x3.4-1968 646
utf-8 utf8 utf-16 utf-16le utf-16be utf-32 utf-32le utf-32be
iso-8859-1 iso-8859-2 iso-8859-3 iso-8859-4 iso-8859-5 iso-8859-6 iso-8859-7 iso-8859-8 iso-8859-9 iso-8859-10
iso-8859-11 iso-8859-13 iso-8859-14 iso-8859-15 iso-8859-16 latin-1 latin1 latin2 latin5 latin9
windows-1250 windows-1251 windows-1252 windows-1253 windows-1254 windows-1255 windows-1256 windows-1257 windows-1258
windows-874 cp437 cp850 cp852 cp855 cp857 cp858 cp862 cp866 cp874 cp932 cp936 cp949 cp950 cp1250 cp1251 cp1252 cp1253
cp1254 cp1255 cp1256 cp1257 cp1258
koi8-r koi8-u koi8-t gb2312 gbk gb18030 hz-gb-2312 big5 big5-hkscs euc-jp euc-kr euc-tw ks_c_5601-1987
iso-2022-jp iso-2022-jp-1 iso-2022-jp-2 iso-2022-jp-3 iso-2022-kr shift_jis shift-jis sjis ms_kanji
tis-620 macintosh mac-roman mac-cyrillic mac-greek mac-turkish ptcp154 viscii
"""
_NAMES = {
    "646": "ascii", "ansi_x3.4-1968": "ascii", "gb2312": "gb18030", "gbk": "gb18030", "cp936": "gb18030",
    "hz-gb-2312": "hz", "ks_c_5601-1987": "cp949", "euc-kr": "cp949", "windows-874": "cp874", "shift-jis": "cp932",
    "shift_jis": "cp932", "sjis": "cp932", "ms_kanji": "cp932", "macintosh": "mac-roman", "euc-tw": "big5",
    "viscii": "cp1258", "iso-8859-1": "cp1252", "latin-1": "cp1252", "latin1": "cp1252",
    "us-ascii": "ascii", "utf8": "utf-8",
}  # fmt: skip  # mail says one thing and means the superset, as browsers know
_ALIASES = {
    **{label: _NAMES.get(label, label) for label in _ALLOWED.split()},
    "iso-8859-8-i": "iso-8859-8", "iso-8859-6-i": "iso-8859-6", "x-sjis": "cp932", "x-gbk": "gb18030",
    "x-mac-roman": "mac-roman", "x-unknown": "utf-8", "unknown-8bit": "utf-8", "unknown": "utf-8", "default": "utf-8",
    "x-user-defined": "cp1252", "iso8859-1": "cp1252", "iso8859-15": "iso-8859-15", "iso8859-2": "iso-8859-2",
    "iso_8859-1": "cp1252", "utf_8": "utf-8", "x-windows-1251": "cp1251", "win-1251": "cp1251", "cp-850": "cp850",
    "binary": "cp1252", "8bit": "cp1252", "windows1252": "cp1252", "x-roman8": "hp-roman8", "dos-866": "cp866",
}  # fmt: skip


@lru_cache(maxsize=256)
def codec_for(label: str) -> str:
    """Return the codec for a charset label, or "" where the label is not on the list."""
    if len(label) > 40:
        return ""
    return _ALIASES.get(label.strip(" \"'\t").lower(), "")


def decode_text(content: bytes, label: str) -> str:
    """Decode by the label if it is on the list; else as UTF-8 if that fits, else as Windows-1252. Never fails."""
    codec = codec_for(label) if label else ""
    if codec in ("", "ascii", "utf-8"):
        return _guess(content)
    try:
        return content.decode(codec, "replace")
    except (UnicodeError, LookupError):
        return _guess(content)


def _guess(content: bytes) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        # One stray byte in UTF-8 text must not turn all of it into Latin letters.
        if sum(1 for start in range(min(len(content), 4096)) if 0xC2 <= content[start] <= 0xF4) > 8:
            replaced = content.decode("utf-8", "replace")
            if replaced.count("\ufffd") * 20 < len(replaced):
                return replaced
        return content.decode("cp1252", "replace")
