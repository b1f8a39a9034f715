"""The text of a message that Outlook keeps as RTF: unpacked (MS-OXRTFCP), and the page inside of it (MS-OXRTFEX).

Security: reads hostile bytes inside a killable worker; what is unpacked is bounded by what the caller allows, and what
is cut ends the text instead of raising.
"""

import re
from collections.abc import Iterator

_COMPRESSED, _PLAIN = b"LZFu", b"MELA"
_DICTIONARY = (
    rb"{\rtf1\ansi\mac\deff0\deftab720{\fonttbl;}{\f0\fnil \froman \fswiss \fmodern \fscript \fdecor MS Sans "
    rb"SerifSymbolArialTimes New RomanCourier{\colortbl\red0\green0\blue0"
    b"\r\n"
    rb"\par \pard\plain\f0\fs20\b\i\u\tab\tx"
)
_RING = 4_096
_PIECE = 65_536
_TOKEN = re.compile(
    rb"\\'(?P<hex>[0-9A-Fa-f]{2})|\\(?P<word>[A-Za-z]+)(?P<number>-?\d+)? ?|\\(?P<sign>[^A-Za-z])"
    rb"|(?P<brace>[{}])|(?P<text>[^\\{}\r\n]+)|[\r\n\\]"
)
_BREAKS = {b"par": "\r\n", b"line": "\r\n", b"tab": "\t", b"lquote": "‘", b"rquote": "’", b"ldblquote": "“",
           b"rdblquote": "”", b"bullet": "•", b"endash": "–", b"emdash": "—"}  # fmt: skip
_SKIPPED = frozenset({b"fonttbl", b"colortbl", b"stylesheet", b"info", b"pict", b"object", b"pntext", b"header",
                      b"footer", b"listtable", b"themedata"})  # fmt: skip


def unpack_rtf(packed: bytes) -> Iterator[bytes]:
    """Yield compressed RTF piece by piece; what is cut ends it."""
    kind = packed[8:12]
    if kind == _PLAIN:
        yield packed[16:]
        return
    if kind != _COMPRESSED:
        return
    ring = bytearray(_DICTIONARY.ljust(_RING, b" "))
    write = len(_DICTIONARY)
    position, out = 16, bytearray()
    while position < len(packed):
        control = packed[position]
        position += 1
        for bit in range(8):
            if position >= len(packed):
                break
            if control >> bit & 1:
                reference = int.from_bytes(packed[position : position + 2], "big")
                position += 2
                offset, length = reference >> 4, (reference & 15) + 2
                if offset == write % _RING:  # the end of the text
                    yield bytes(out)
                    return
            else:
                ring[write % _RING] = packed[position]
                offset, length = write, 1
                position += 1
            for step in range(length):  # a reference may reach into what it writes itself
                byte = ring[(offset + step) % _RING]
                ring[(write + step) % _RING] = byte
                out.append(byte)
            write += length
        if len(out) > _PIECE:
            yield bytes(out)
            out.clear()
    yield bytes(out)


def read_rtf(rtf: bytes) -> tuple[str, bool]:
    """Return the page that an RTF text was made from, or else its plain text; True if it is a page."""
    is_page = b"\\fromhtml" in rtf[:4_096]  # not inspection: RTF says at its beginning what it was made from
    return "".join(_text_of(rtf, is_page=is_page)), is_page


def _text_of(rtf: bytes, *, is_page: bool) -> Iterator[str]:
    states: list[tuple[bool, bool]] = []
    shown, muted = True, False  # muted: what only readers of RTF are shown
    starred = False
    after_unicode = 0
    for token in _TOKEN.finditer(rtf):
        brace, word = token["brace"], token["word"]
        if brace == b"{":
            states.append((shown, muted))
        elif brace == b"}":
            shown, muted = states.pop() if states else (True, False)
        elif token["sign"] == b"*":
            starred = True
            continue
        elif word == b"htmlrtf":
            muted = token["number"] != b"0"
        elif word in _SKIPPED or (starred and word is not None):
            shown = word == b"htmltag"
        elif word == b"u" and token["number"] and shown and not muted:
            yield chr(int(token["number"][:7]) % 65_536).encode("utf-16-le", "replace").decode("utf-16-le", "replace")
            after_unicode = 1
        elif shown and not muted:
            text = _plain(token, skip=after_unicode)
            after_unicode = 0
            yield text
        starred = False


def _plain(token: re.Match[bytes], *, skip: int) -> str:
    if token["hex"]:
        return "" if skip else bytes.fromhex(token["hex"].decode()).decode("cp1252", "replace")
    if token["text"]:
        return token["text"][skip if token["text"].startswith(b"?") else 0 :].decode("cp1252", "replace")
    if token["word"]:
        return _BREAKS.get(token["word"], "")
    sign = token["sign"] or b""
    return {b"~": "\u00a0", b"_": "-", b"-": ""}.get(sign, sign.decode("latin-1"))
