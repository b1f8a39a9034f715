"""Makes small PDF files, whole and with a valid cross-reference table."""

import hashlib
import zlib

LINK = "https://login-portal.thief.example/verify"


def pdf(*objects: bytes, catalog: bytes = b"", trailer: bytes = b"", version: bytes = b"1.5") -> bytes:
    """Return a file of one page; the given objects are numbered from 4, and the page's annotations are object 4."""
    fixed = (
        b"<</Type/Catalog/Pages 2 0 R" + catalog + b">>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 300]/Resources<<>>/Annots[4 0 R]>>",
    )
    return numbered((*fixed, *objects), trailer, version)


def numbered(objects: tuple[bytes, ...], trailer: bytes = b"", version: bytes = b"1.5") -> bytes:
    out = bytearray(b"%PDF-" + version + b"\n")
    places = []
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n" % number + content + b"\nendobj\n"
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(places) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer\n<</Root 1 0 R/Size %d" % (len(places) + 1) + trailer + b">>\nstartxref\n%d\n%%%%EOF\n" % start
    return bytes(out)


def link(uri: bytes = b"(" + LINK.encode() + b")") -> bytes:
    return b"<</Type/Annot/Subtype/Link/Rect[0 0 300 300]/A<</S/URI/URI " + uri + b">>>>"


def stream(data: bytes, entries: bytes = b"") -> bytes:
    return b"<<" + entries + b"/Length %d>>\nstream\n" % len(data) + data + b"\nendstream"


def with_object_stream(
    catalog: bytes, held: bytes, filters: bytes = b"/FlateDecode", name: bytes = b"/ObjStm"
) -> bytes:
    """Return a file whose annotation stands in an object stream, found by a cross-reference stream."""
    packed = b"4 0 " + held
    data = zlib.compress(packed)
    if b"ASCIIHex" in filters:
        data = data.hex().encode() + b">"
    out = bytearray(b"%PDF-1.5\n")
    places = {}
    for number, content in (
        (1, b"<</Type/Catalog/Pages 2 0 R" + catalog + b">>"),
        (2, b"<</Type/Pages/Kids[3 0 R]/Count 1>>"),
        (3, b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 300]/Resources<<>>/Annots[4 0 R]>>"),
        (5, stream(data, b"/Type" + name + b"/N 1/First 4/Filter[" + filters + b"]")),
    ):
        places[number] = len(out)
        out += b"%d 0 obj\n" % number + content + b"\nendobj\n"
    places[6] = start = len(out)
    rows = bytes(7)
    for number in range(1, 7):
        row = (2, 5, 0) if number == 4 else (1, places[number], 0)
        rows += bytes([row[0]]) + row[1].to_bytes(4, "big") + row[2].to_bytes(2, "big")
    table = zlib.compress(rows)
    out += b"6 0 obj\n" + stream(table, b"/Type/XRef/W[1 4 2]/Size 7/Root 1 0 R/Filter/FlateDecode") + b"\nendobj\n"
    return bytes(out) + b"startxref\n%d\n%%%%EOF\n" % start


_PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")


def encrypted(uri: str = LINK, password: str = "", script: str = "") -> bytes:
    """Return a file that is encrypted with RC4 of 40 bits (ISO 32000-1, 7.6) and has a link and perhaps a script."""
    padded = (password.encode() + _PADDING)[:32]
    owner = _rc4(hashlib.md5(padded).digest()[:5], padded)
    rights = (0xFFFFFFFC).to_bytes(4, "little")
    key = hashlib.md5(padded + owner + rights + b"0" * 16).digest()[:5]
    user = _rc4(key, _PADDING)

    def hidden(number: int, text: str) -> bytes:
        salted = hashlib.md5(key + number.to_bytes(3, "little") + b"\0\0").digest()[:10]
        return b"<" + _rc4(salted, text.encode()).hex().encode() + b">"

    rules = b"<</Filter/Standard/V 1/R 2/P -4/O<" + owner.hex().encode() + b">/U<" + user.hex().encode() + b">>>"
    trailer = b"/Encrypt 5 0 R/ID[<" + (b"0" * 16).hex().encode() + b"><" + (b"0" * 16).hex().encode() + b">]"
    action = b"/OpenAction<</S/JavaScript/JS" + hidden(1, script) + b">>" if script else b""
    return pdf(link(hidden(4, uri)), rules, catalog=action, trailer=trailer)


def _rc4(key: bytes, data: bytes) -> bytes:
    box = list(range(256))
    j = 0
    for i in range(256):
        j = (j + box[i] + key[i % len(key)]) % 256
        box[i], box[j] = box[j], box[i]
    out = bytearray()
    i = j = 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + box[i]) % 256
        box[i], box[j] = box[j], box[i]
        out.append(byte ^ box[(box[i] + box[j]) % 256])
    return bytes(out)
