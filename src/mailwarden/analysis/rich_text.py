"""The text and the links of RTF, as far as clients show RTF as the text of a message.

Security: reads hostile bytes inside a killable worker; one pass, bounded by the reader's limits, and it never raises.
"""

import re

from mailwarden.message.charsets import codec_for, decode_text
from mailwarden.message.coverage import Coverage
from mailwarden.model.place import Place

# RTF 1.9.1: a control word with its number, a hexadecimal character, a control symbol, a brace, or text.
_TOKEN = re.compile(
    rb"\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\([^a-zA-Z])|([{}])|[\r\n]+|([^\\{}\r\n]+)"
)
_UNSHOWN = frozenset(
    (  # noqa: SIM905 - as a list of quoted words it would fill the screen
        "fonttbl colortbl stylesheet info pict objdata themedata colorschememapping latentstyles datastore generator "
        "filetbl listtable listoverridetable rsidtbl xmlnstbl mmathPr"
    ).split()
)
_BREAKS = frozenset({b"par", b"line", b"tab", b"cell", b"row", b"page", b"sect"})
_CODE_PAGE = re.compile(rb"\\ansicpg(\d{1,5})")
_ADDRESS = re.compile(r"HYPERLINK\s+(?:\\[a-z]\s+)*\"?([^\"\s}]+)", re.IGNORECASE)


def read_rich_text(content: bytes, coverage: Coverage, place: Place) -> tuple[str, tuple[str, ...]]:
    """Return the text, fields included, and the addresses of its HYPERLINK fields."""
    page = _CODE_PAGE.search(content[:4_096])  # not inspection: where RTF names its code page
    charset = f"cp{page[1].decode()}" if page else "cp1252"
    text = _read(content, charset if codec_for(charset) else "cp1252")
    text = coverage.cut(text, "text", place)
    return text, tuple(dict.fromkeys(match[1] for match in _ADDRESS.finditer(text)))


def _read(content: bytes, charset: str) -> str:
    pieces: list[str] = []
    waiting = bytearray()
    depth, hidden = 0, 0  # `hidden`: the depth at which a destination began that nobody is shown
    skip = 0  # characters that stand for a Unicode character in readers that know none
    for match in _TOKEN.finditer(content):
        word, number, code, symbol, brace, plain = match.groups()
        if brace:
            depth += 1 if brace == b"{" else -1
            hidden = 0 if hidden and depth < hidden else hidden
        elif word is not None:
            if word.decode() in _UNSHOWN and not hidden:
                hidden = depth
            elif word == b"u" and number and not hidden:
                pieces += (decode_text(bytes(waiting), charset), chr(int(number) % 0x10000))
                waiting.clear()
                skip = 1
            elif word in _BREAKS:
                waiting += b"\n"
            elif word == b"bin" and number:
                continue
        elif hidden:
            continue
        elif code:
            waiting += b"" if skip else bytes.fromhex(code.decode())
            skip = 0
        elif symbol:
            waiting += symbol if symbol in b"\\{}" else b" " if symbol == b"~" else b""
        elif plain:
            waiting += plain[skip:]
            skip = 0
    pieces.append(decode_text(bytes(waiting), charset))
    return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
