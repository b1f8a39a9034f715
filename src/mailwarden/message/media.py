"""The MIME fields of an entity: type, boundary, transfer encoding, names, and doubts about them.

Security: works on hostile bytes; bounded by the limits of the header block it is given.
"""

import re
from dataclasses import dataclass

from mailwarden.message.charsets import codec_for
from mailwarden.message.file_names import LONGEST
from mailwarden.message.headers import (
    Field,
    Parameter,
    all_values,
    decode_bytes,
    decode_name,
    decode_value,
    first_token,
    parameter,
    read_parameters,
    strip_comments,
)
from mailwarden.message.limits import Limits

ENCODINGS = frozenset({b"", b"7bit", b"8bit", b"binary", b"base64", b"quoted-printable"})
UUENCODINGS = frozenset({b"x-uuencode", b"uuencode", b"x-uue", b"uue", b"x-uu"})
_TYPE = re.compile(rb"\s*([!#$%&'*+\-.^_`|~0-9A-Za-z]+)\s*/\s*([!#$%&'*+\-.^_`|~0-9A-Za-z]+)\s*(?=[;,]|$)")
_ODD = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f-\xff]")
_MIME_NAME = re.compile(rb"[^a-z0-9-]")
_SINGLE = (b"content-type", b"content-transfer-encoding", b"content-disposition")


@dataclass(slots=True)
class Media:
    type: str
    boundary: bytes
    charset: str
    encoding: bytes
    disposition: str
    name: str
    doubts: list[str]
    other_names: tuple[str, ...] = ()
    other_charsets: tuple[str, ...] = ()
    joins_lines: bool = False
    other_types: tuple[str, ...] = ()  # of further Content-Type fields: clients differ on which of several counts
    other_multiparts: tuple[bytes, ...] = ()  # the values of those that are multiparts
    other_encodings: tuple[bytes, ...] = ()
    elsewhere: str = ""  # where the content of message/external-body lies (RFC 2046 5.2.3, RFC 2017)
    base: str = ""  # the base of relative addresses in the part (RFC 2557, section 5)

    @property
    def is_multipart(self) -> bool:
        return self.type.startswith("multipart/")

    @property
    def is_message(self) -> bool:
        return self.type in {"message/rfc822", "message/global", "message/news"}

    @property
    def is_plain_message(self) -> bool:
        """Whether this is an enclosed message without a transfer encoding."""
        return self.is_message and self.encoding not in {b"base64", b"quoted-printable"}


def read_media(fields: list[Field], limits: Limits) -> Media:
    """Parse the MIME fields of one header block; the first of several counts, and several are a doubt."""
    values: dict[bytes, bytes] = {}
    repeated: dict[bytes, list[bytes]] = {}
    doubts: list[str] = []
    for field, value in fields:
        if field[:8] == b"content-":
            _keep(field, value, values, doubts, repeated)
        elif not field or b"content" in field:
            _doubt_name(field, value, doubts)
    if not values:
        return Media("text/plain", b"", "", b"", "", "", doubts)
    raw_type = values.get(b"content-type", b"")
    kind, parameters = _read_type(raw_type, limits, doubts)
    boundary = _read_boundary(kind, parameters, doubts)
    charset, *other_charsets = _read_charsets(parameters) or [""]
    if charset and kind.startswith("text/") and not codec_for(charset):
        doubts.append("The charset is one that readers do not agree on")
    encoding = _read_encoding(values.get(b"content-transfer-encoding", b""), kind, doubts)
    disposition, names = _read_disposition(values.get(b"content-disposition", b""), parameters, limits, doubts)
    for value in repeated.get(b"content-disposition", ()):
        names += _read_disposition(value, [], limits, [])[1]
    if not names and not kind.startswith(("text/", "multipart/", "message/")):
        names = _other_names(values)
    if kind in {"message/partial", "message/external-body"}:
        doubts.append(f"The type {kind} leaves content to be put together elsewhere")
    name, *other_names = names or [""]
    joins_lines = parameter(parameters, b"delsp")[0].lower() == b"yes"
    return Media(
        kind,
        boundary,
        charset,
        encoding,
        disposition,
        name,
        doubts,
        tuple(other_names),
        tuple(other_charsets),
        joins_lines,
        tuple(_read_type(value, limits, [])[0] for value in repeated.get(b"content-type", ())),
        tuple(value for value in repeated.get(b"content-type", ()) if b"multipart" in value.lower()),
        tuple(_read_encoding(value, kind, []) for value in repeated.get(b"content-transfer-encoding", ())),
        _read_elsewhere(parameters) if kind == "message/external-body" else "",
        decode_value(values.get(b"content-base") or values.get(b"content-location") or b""),
    )


def _other_names(values: dict[bytes, bytes]) -> list[str]:
    """Return the names that some clients give a file without one: its description or its location."""
    described = decode_value(values.get(b"content-description", b""))
    location = decode_value(values.get(b"content-location", b""))
    if "://" in location:  # without its host, which may end as the name of a program does
        location = location.partition("://")[2].partition("/")[2].partition("?")[0]
    return [bound_name(name) for name in (described, location) if name and len(name.split()) == 1]


def _read_elsewhere(parameters: list[Parameter]) -> str:
    """Return the address from which a client fetches the content."""
    url = parameter(parameters, b"url")[0].decode("latin-1")
    if url:
        return "".join(url.split())
    site, folder, name = (parameter(parameters, each)[0].decode("latin-1") for each in (b"site", b"directory", b"name"))
    return f"ftp://{site}/{folder.strip('/')}/{name}" if site else ""


def _read_charsets(parameters: list[Parameter]) -> list[str]:
    """Return every charset that the type names, without repetition; readers differ on which of several counts."""
    values = (
        value.strip(b" \"'").decode("ascii", "replace").lower() for value, _ in all_values(parameters, b"charset")
    )
    return list(dict.fromkeys(filter(None, values)))


def _keep(
    name: bytes, value: bytes, values: dict[bytes, bytes], doubts: list[str], repeated: dict[bytes, list[bytes]]
) -> None:
    bare = name.strip()
    if bare != name and bare in _SINGLE:
        doubts.append("A MIME header has white space before its colon")
    if bare in values:
        if bare in _SINGLE and values[bare].strip() != value.strip():
            doubts.append(f"There are several {bare.decode()} headers")
            repeated.setdefault(bare, []).append(value)
        return
    values[bare] = value
    if bare in _SINGLE[:2] and _ODD.search(value):
        doubts.append("A MIME header has control or 8-bit characters")
    elif bare not in _SINGLE and _MIME_NAME.search(bare):
        doubts.append("The name of a MIME header has characters that do not belong there")


def _doubt_name(name: bytes, value: bytes, doubts: list[str]) -> None:
    if name:
        if _MIME_NAME.sub(b"", name).startswith(b"content-") and not name.startswith(b"x-"):
            doubts.append("The name of a MIME header has characters that do not belong there")
    elif not value.startswith((b"From ", b">From ")) and value.strip():
        doubts.append("A line among the headers has no colon")


def _read_type(value: bytes, limits: Limits, doubts: list[str]) -> tuple[str, list[Parameter]]:
    if not value:
        return "text/plain", []
    plain = strip_comments(value)
    match = _TYPE.match(plain)
    if match is None:
        if plain.strip().lower() not in {b"text", b""}:
            doubts.append("The content type is not one")
        return "text/plain", read_parameters(b";" + plain, limits.parameters)
    kind = (match[1] + b"/" + match[2]).lower().decode("ascii")
    if plain is not value and kind.startswith(("multipart/", "message/")):
        doubts.append("A comment stands in a content type")
    return kind, read_parameters(plain[match.end() :], limits.parameters) if match.end() < len(plain) else []


def _read_boundary(kind: str, parameters: list[Parameter], doubts: list[str]) -> bytes:
    found = [each for each in parameters if each.name == b"boundary"]
    split = [each for each in parameters if each.name.startswith(b"boundary*")]
    if not kind.startswith("multipart/"):
        return b""
    if len({each.value for each in found}) > 1 or (found and split):
        doubts.append("A multipart names several boundaries")
    elif split:
        doubts.append("A boundary is written in pieces or percent signs")
    boundary = found[0].value if found else parameter(parameters, b"boundary")[0]
    if not boundary.strip():
        doubts.append("A multipart names no boundary")
        return b""
    first = found[0] if found else None
    if first and (first.escaped or (not first.quoted and (b'"' in first.value or b"'" in first.value[:1]))):
        doubts.append("A boundary is written with escapes or stray quotes")
    if boundary != boundary.strip() or _ODD.search(boundary):
        doubts.append("A boundary has white space around it or characters that do not belong there")
    if len(boundary) > 200:
        doubts.append("A boundary is far longer than the 70 characters that the standard allows")
    return boundary.rstrip()


def _read_encoding(value: bytes, kind: str, doubts: list[str]) -> bytes:
    token = first_token(value)
    bare = value.strip().lower()
    if token != bare and bare:
        doubts.append("A transfer encoding is written with comments, parameters or several words")
    if token not in ENCODINGS:
        doubts.append("The transfer encoding is unknown")
        token = token.strip(b"'\"`.,:_-")
        squeezed = token.replace(b"-", b"").replace(b"_", b"")
        token = {b"base64": b"base64", b"quotedprintable": b"quoted-printable"}.get(squeezed, token)
    if token in {b"base64", b"quoted-printable"} and kind.startswith(("multipart/", "message/rfc822")):
        doubts.append("A multipart or message has a transfer encoding of its own")
    return token


def _read_disposition(
    value: bytes, parameters: list[Parameter], limits: Limits, doubts: list[str]
) -> tuple[str, list[str]]:
    """Return the disposition and every name of the file: `filename` first, then `name` of the type (RFC 2183, 2.3)."""
    disposition = ""
    values: list[tuple[bytes, bytes]] = []
    if value:
        token = first_token(value)
        disposition = token.decode("ascii", "replace") if token in {b"attachment", b"inline"} else ""
        if not disposition and token:
            disposition = "attachment"  # RFC 2183, section 2.8: unknown dispositions are attachments
        own = read_parameters(strip_comments(value), limits.parameters)
        values = all_values(own, b"filename")
        if len({each.value for each in own if each.name == b"filename"}) > 1:
            doubts.append("An attachment has several names")
    values += all_values(parameters, b"name")
    return disposition, list(dict.fromkeys(filter(None, (name for each in values for name in _decode_name(*each)))))


def _decode_name(value: bytes, charset: bytes) -> list[str]:
    """Return the names of a value, the likeliest first."""
    if not charset and b"=?" not in value:
        return [bound_name(decode_value(value))]
    plain = [decode_bytes(value, charset.decode("ascii", "replace"))] if charset else []
    words = decode_name(value) if b"=?" in value else ()
    return [bound_name(name) for name in (*plain, *words)]


def bound_name(name: str) -> str:
    """Return a name within its limit; of a longer one both ends, because systems obey the extension."""
    return name if len(name) <= LONGEST else name[: LONGEST // 2] + name[-LONGEST // 2 :]
