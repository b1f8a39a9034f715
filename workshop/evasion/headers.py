"""The listed file and the listed link under MIME headers that clients read in more than one way."""

import base64
import quopri
from collections.abc import Iterator

from workshop.evasion.mail import Part, file_part, message, mixed, text_part, with_file
from workshop.evasion.payloads import LISTED_FILE, LISTED_HOST, LISTED_URL

NAME = LISTED_FILE.name
_STEM, _ENDING = NAME.rsplit(".", 1)
_PAGE = f'<html><body><a href="{LISTED_URL}">minutes</a></body></html>'.encode()


def _word(text: bytes, charset: str) -> str:
    return f"=?{charset}?B?{base64.b64encode(text).decode()}?="


NAMES = {
    "unquoted with a blank": f"attachment; filename=my {NAME}",
    "quote without an end": f'attachment; filename="my {NAME}',
    "without a disposition": f"filename={NAME}",
    "behind a comma": f"attachment,filename={NAME}",
    "behind a colon": f"attachment:filename={NAME}",
    "behind an open comment": f"attachment; x=( ; filename={NAME}",
    "behind 120 parameters": f"attachment; {' '.join(f'a{n}=1' for n in range(120))} filename={NAME}",
    "in single quotes": f"attachment; filename='{NAME}'",
    "pieces out of order": f"attachment; filename*1=.{_ENDING}; filename*0={_STEM}",
    "pieces from one": f"attachment; filename*1={_STEM}; filename*2=.{_ENDING}",
    "pieces beside a name": f"attachment; filename=\"a.txt\"; filename*0*=utf-8''{_STEM}; filename*1*=%2E{_ENDING}",
    "percent signs in UTF-16": "attachment; filename*=utf-16le''"
    + "".join(f"%{byte:02x}" for byte in NAME.encode("utf-16-le")),
    "two words": f'attachment; filename="=?utf-8?Q?{_STEM}?= =?iso-8859-1?Q?=2E{_ENDING}?="',
    "word with a blank": f'attachment; filename="=?utf-8?Q?{NAME[:-1]} {NAME[-1]}?="',
    "word without an end": f'attachment; filename="=?utf-8?Q?{_STEM}=2E{_ENDING}"',
    "word in a word": f'attachment; filename="{_word(_word(NAME.encode(), "utf-8").encode(), "utf-8")}"',
    "word in big-endian UTF-16": f'attachment; filename="{_word(NAME.encode("utf-16-be"), "utf-16")}"',
    "word in UTF-16 labelled ASCII": f'attachment; filename="{_word(NAME.encode("utf-16-le"), "us-ascii")}"',
    "word in UTF-16 labelled otherwise": f'attachment; filename="{_word(NAME.encode("utf-16-le"), "x-other")}"',
    "word in UTF-7": f'attachment; filename="=?utf-7?Q?{_STEM}+AC4-{_ENDING}?="',
    "word in EBCDIC": f'attachment; filename="{_word(NAME.encode("cp037"), "cp037")}"',
    "word in percent signs": f"attachment; filename*=utf-8''%3D%3Futf-8%3FQ%3F{_STEM}%3D2E{_ENDING}%3F%3D",
}


def _part(*headers: str, body: bytes = _PAGE) -> bytes:
    return message(Part(headers, body))


def _named(*headers: str) -> bytes:
    file = Part(("Content-Type: application/octet-stream", *headers), LISTED_FILE.content)
    return message(mixed(text_part(), file))


def header_cases() -> Iterator[tuple[str, bytes]]:
    for name, disposition in NAMES.items():
        yield f"header: name, {name}", _named(f"Content-Disposition: {disposition}")
    yield "header: name in the description", _named("Content-Disposition: attachment", f"Content-Description: {NAME}")
    yield "header: name in the location", _named("Content-Disposition: attachment", f"Content-Location: {NAME}")
    encoded = base64.encodebytes(_PAGE)
    kind, seven, sixty = (
        "Content-Type: text/html",
        "Content-Transfer-Encoding: 7bit",
        "Content-Transfer-Encoding: base64",
    )
    printable = "Content-Transfer-Encoding: quoted-printable"
    yield "header: encoding twice, base64 last", _part(kind, seven, sixty, body=encoded)
    yield "header: encoding twice, base64 first", _part(kind, sixty, seven)
    quoted = quopri.encodestring(_PAGE).replace(b"listed", b"=6Cisted")
    yield "header: encoding twice, quoted-printable", _part(kind, seven, printable, body=quoted)
    hidden = "".join(f"&#{ord(letter)};" for letter in LISTED_URL)
    body = f'Hello <a href="{hidden}">minutes</a>'.encode()
    yield "header: type twice", _part("Content-Type: text/plain", kind, body=body)
    inner = mixed(text_part(), file_part(NAME, LISTED_FILE.content), boundary="b0")
    multipart = 'Content-Type: multipart/mixed; boundary="b0"'
    yield "header: type twice, multipart last", _part("Content-Type: text/plain", multipart, body=inner.body)
    other = 'Content-Type: multipart/mixed; boundary="a1"'
    yield "header: type twice, two boundaries", _part(other, multipart, body=inner.body)
    yield "header: multipart in base64", _part(multipart, sixty, body=base64.encodebytes(inner.body))
    relative = b'<a href="verify">minutes</a>'
    yield "header: content-base", _part(kind, f"Content-Base: https://{LISTED_HOST}/", body=relative)
    yield "header: content-location", _part(kind, f"Content-Location: https://{LISTED_HOST}/a", body=relative)
    elsewhere = Part((f'Content-Type: message/external-body; access-type=URL; URL="{LISTED_URL}"',), kind.encode())
    yield "header: external body", message(mixed(text_part(), elsewhere))
    both = ("Content-Type: text/html; charset=us-ascii; charset=cp037", sixty)
    coded = _part(*both, body=base64.encodebytes(_PAGE.decode().encode("cp037")))
    yield "header: two charsets in an attached message", with_file("a.eml", coded)
