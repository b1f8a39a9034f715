"""`parameters` records that are invalid JSON or have another shape, and the expected error code."""

import json
from collections.abc import Iterator, Mapping

from workshop.torture.cases import Case, Expected
from workshop.torture.uploads import JSON, MESSAGE, body_of, part, upload_case

OK = Expected(200)
NOT_JSON = Expected(400, "invalid_json")
VIOLATION = Expected(400, "schema_violation")
NOT_A_UUID = Expected(400, "invalid_tenant_uid")
NO_TENANT = Expected(404, "tenant_not_found")

Fields = Mapping[str, object]

_BORDER: Fields = {"envelopeFrom": "a@sender.example", "envelopeRecipients": ["b@recipient.example"]}
_TEXT = json.dumps({"borderMtaData": _BORDER})
_WRONG_KINDS: Mapping[str, object] = {
    "true": True,
    "false": False,
    "zero": 0,
    "a number": 17,
    "a negative number": -1,
    "a fraction": 1.5,
    "an empty list": [],
    "a list of numbers": [1, 2],
    "an empty object": {},
    "an object": {"a": "b"},
}


def json_cases() -> Iterator[Case]:
    """Yield every case."""
    for name, raw, expected in (*_no_json(), *_escapes(), *_shapes(), *_fields(), *_envelopes(), *_tenants()):
        yield upload_case(name, body_of(part(b"parameters", raw, JSON), part(b"email", MESSAGE)), expected)


Row = tuple[str, bytes, Expected]


def record(border: Fields | None = None, **more: object) -> bytes:
    """Return a record with some fields of the border data replaced, and additional ones."""
    return json.dumps({"borderMtaData": {**_BORDER, **(border or {})}, **more}).encode("utf-8", "surrogatepass")


def _no_json() -> Iterator[Row]:
    good = _TEXT.encode()
    yield "json: a good record", good, OK
    yield "json: spaces around it", b" \r\n\t" + good + b"\n ", OK
    for length in range(1, len(good), 3):
        yield f"json: cut after {length} bytes", good[:length], NOT_JSON
    for name, raw in (
        ("nothing", b""),
        ("spaces", b"   "),
        ("null", b"null"),
        ("true", b"true"),
        ("a number", b"1"),
        ("a string", b'"x"'),
        ("an empty list", b"[]"),
        ("a list of records", b"[" + good + b"]"),
        ("two records", good + good),
        ("two records on two lines", good + b"\n" + good),
        ("a comma behind it", good + b","),
        ("a byte order mark", b"\xef\xbb\xbf" + good),
        ("UTF-16", _TEXT.encode("utf-16")),
        ("UTF-16 without a mark", _TEXT.encode("utf-16-be")),
        ("UTF-32", _TEXT.encode("utf-32")),
        ("a NUL behind it", good + b"\0"),
        ("a vertical tab before it", b"\x0b" + good),
        ("a no-break space before it", "\xa0".encode() + good),
        ("a comment", b"/* x */" + good),
        ("a comment of a line", b"// x\n" + good),
        ("a comment of another kind", b"# x\n" + good),
        ("single quotes", _TEXT.replace('"', "'").encode()),
        ("names without quotes", _TEXT.replace('"borderMtaData"', "borderMtaData").encode()),
        ("a comma before the brace", good[:-1] + b",}"),
        ("a comma before the bracket", good.replace(b'"]', b'",]')),
        ("a comma too many", good.replace(b", ", b",, ", 1)),
        ("a colon too many", good.replace(b": ", b":: ", 1)),
        ("no colon", good.replace(b": ", b" ", 1)),
        ("no comma", good.replace(b", ", b" ", 1)),
        ("a brace too many", good + b"}"),
        ("a bracket for a brace", good[:-1] + b"]"),
        ("a form of words", b"borderMtaData=x"),
        ("XML", b"<borderMtaData/>"),
        ("YAML", b"borderMtaData:\n  envelopeFrom: a@sender.example\n"),
        ("100,000 brackets", b"[" * 100_000),
        ("100,000 brackets and their ends", b"[" * 100_000 + b"]" * 100_000),
        ("100,000 objects inside each other", b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
        ("20,000 lists in a field", record().replace(b'"a@sender.example"', b"[" * 20_000 + b"]" * 20_000)),
    ):
        yield f"json: {name}", raw, NOT_JSON
    for literal in (
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"nan",
        b"undefined",
        b"None",
        b"True",
        b"0x1",
        b"01",
        b"+1",
        b".5",
        b"5.",
        b"1e",
        b"-",
        b"'x'",
        b"`x`",
        b"1_000",
        b"tru",
        b"nul",
    ):
        raw = record().replace(b'"a@sender.example"', literal)
        yield f"json: a value of {literal.decode()}", raw, NOT_JSON
    huge = b"9" * 5_000
    yield "json: an integer of 5,000 digits", record().replace(b'"a@sender.example"', huge), NOT_JSON
    yield "json: a number of 400 digits", record().replace(b'"a@sender.example"', b"9" * 400), VIOLATION
    yield "json: a number beyond floats", record().replace(b'"a@sender.example"', b"1e999"), VIOLATION
    for key in ("borderMtaData", "envelopeFrom", "envelopeRecipients"):
        value = good[good.index(key.encode()) - 1 :].split(b": ", 1)[1]
        first = value[: value.index(b"]") + 1] if key == "envelopeRecipients" else b'"x"'
        doubled = good.replace(f'"{key}": '.encode(), f'"{key}": '.encode() + first + f', "{key}": '.encode())
        yield f"json: {key} twice", doubled, NOT_JSON
    twice = good[:-1] + b', "tenantUid": null, "tenantUid": null}'
    yield "json: tenantUid twice", twice, NOT_JSON
    escaped = good[:-1] + b', "tenantUid": null, "tenantU\\u0069d": null}'
    yield "json: tenantUid twice, once in disguise", escaped, NOT_JSON


def _escapes() -> Iterator[Row]:
    def inside(text: bytes) -> bytes:
        return record().replace(b"a@sender.example", text + b"@sender.example")

    for name, text in (
        ("an unknown escape", b"\\x41"),
        ("a lone backslash", b"\\ "),
        ("half an escape", b"\\u12"),
        ("an escape of no digits", b"\\uzzzz"),
        ("a lone high surrogate", b"\\ud800"),
        ("a lone low surrogate", b"\\udc00"),
        ("surrogates the wrong way round", b"\\udc00\\ud800"),
        ("an escaped NUL", b"\\u0000"),
        ("a bare NUL", b"\0"),
        ("a bare line break", b"\n"),
        ("a bare tab", b"\t"),
        ("a bare escape character", b"\x1b"),
        ("a byte that is not UTF-8", b"\xff"),
        ("half a character", b"\xc3"),
        ("an overlong slash", b"\xc0\xaf"),
        ("an overlong NUL", b"\xc0\x80"),
        ("a surrogate in UTF-8", b"\xed\xa0\x80"),
        ("a character beyond Unicode", b"\xf4\x90\x80\x80"),
        ("Latin-1", b"\xe9"),
    ):
        yield f"text: {name}", inside(text), NOT_JSON
    for name, text in (
        ("an escaped letter", b"\\u0061"),
        ("an escaped slash", b"\\/"),
        ("a pair of surrogates", b"\\ud83d\\ude00"),
        ("a character of four bytes", "\U0001f600".encode()),
        ("a letter with an accent", "\xe9".encode()),
        ("an escaped backslash", b"\\\\"),
    ):
        yield f"text: {name}", inside(text), OK
    yield "text: an escaped quote, which opens a local part that nothing closes", inside(b'\\"'), VIOLATION


def _shapes() -> Iterator[Row]:
    yield "shape: an empty object", b"{}", VIOLATION
    for name, value in (*_WRONG_KINDS.items(), ("null", None), ("a string", "x")):
        yield f"shape: borderMtaData is {name}", json.dumps({"borderMtaData": value}).encode(), VIOLATION
    for key in ("envelopeFrom", "envelopeRecipients"):
        rest = {name: value for name, value in _BORDER.items() if name != key}
        yield f"shape: no {key}", json.dumps({"borderMtaData": rest}).encode(), VIOLATION
    yield "shape: the border data not in its object", json.dumps(_BORDER).encode(), VIOLATION
    for key in ("bordermtadata", "BorderMtaData", "border_mta_data", "borderMtaData ", "borderMTAData"):
        yield f"shape: {key!r} for borderMtaData", json.dumps({key: _BORDER}).encode(), VIOLATION
    for key in ("tenantUID", "tenantuid", "tenant_uid", "tenant", "tenantId", "comment", "", "$schema", "__proto__"):
        yield (
            f"shape: {key!r} beside borderMtaData",
            json.dumps({"borderMtaData": _BORDER, key: "x"}).encode(),
            VIOLATION,
        )
    for key in (
        "EnvelopeFrom",
        "envelope_from",
        "recipients",
        "remoteAddr",
        "helo",
        "senderHELO",
        "envelopeTo",
        "",
        "constructor",
    ):
        yield f"shape: {key!r} in borderMtaData", record({key: "x"}), VIOLATION


def _fields() -> Iterator[Row]:
    for key in ("envelopeFrom", "remoteAddress", "senderHelo"):
        for name, value in _WRONG_KINDS.items():
            yield f"field: {key} is {name}", record({key: value}), VIOLATION
    yield "field: envelopeFrom is null", record({"envelopeFrom": None}), VIOLATION
    yield "field: remoteAddress is null", record({"remoteAddress": None}), OK
    yield "field: senderHelo is null", record({"senderHelo": None}), OK
    yield "field: envelopeRecipients is null", record({"envelopeRecipients": None}), VIOLATION
    yield "field: envelopeRecipients is a string", record({"envelopeRecipients": "b@recipient.example"}), VIOLATION
    for name, value in _WRONG_KINDS.items():
        if not isinstance(value, list) or value:
            yield f"field: envelopeRecipients is {name}", record({"envelopeRecipients": value}), VIOLATION
        mixed = {"envelopeRecipients": ["b@recipient.example", value]}
        yield f"field: a recipient is {name}", record(mixed), VIOLATION
    yield "field: a recipient is null", record({"envelopeRecipients": [None]}), VIOLATION


def _envelopes() -> Iterator[Row]:
    for sender in ("", "<>", "a@sender.example", "\xfc@b\xfccher.example", "x" * 1_024):
        yield f"envelope: sender {sender[:30]!r}", record({"envelopeFrom": sender}), OK
    yield "envelope: a sender with a space", record({"envelopeFrom": "a b@sender.example"}), VIOLATION
    yield "envelope: a sender of 1,025 characters", record({"envelopeFrom": "x" * 1_025}), VIOLATION
    yield "envelope: no recipient", record({"envelopeRecipients": []}), VIOLATION
    yield "envelope: an empty recipient", record({"envelopeRecipients": [""]}), VIOLATION
    yield "envelope: a recipient of 1,025 characters", record({"envelopeRecipients": ["x" * 1_025]}), VIOLATION
    for count, expected in ((2, OK), (1_000, OK), (1_001, VIOLATION), (20_000, VIOLATION)):
        recipients = [f"b{number}@recipient.example" for number in range(count)]
        yield f"envelope: {count} recipients", record({"envelopeRecipients": recipients}), expected
    for code in (*range(1, 0x20), *range(0x7F, 0xA0, 4), 0x85):
        for key, value in (
            ("envelopeFrom", f"a@sender.example{chr(code)}"),
            ("envelopeRecipients", [f"b{chr(code)}@recipient.example"]),
            ("senderHelo", f"{chr(code)}mail.sender.example"),
        ):
            if code < 0x20 or key == "senderHelo":
                yield (
                    f"envelope: U+{code:04X} in {key}{'' if code != 0x85 else ' again'}",
                    record({key: value}),
                    VIOLATION,
                )
    yield (
        "envelope: a header injected by the sender",
        record({"envelopeFrom": "a@b.example\r\nFile: /etc/passwd"}),
        VIOLATION,
    )
    yield "envelope: a header injected by the HELO", record({"senderHelo": "x\r\nFile: /etc/passwd"}), VIOLATION
    for address in ("192.0.2.1", "2001:db8::1", "::", "::ffff:192.0.2.1", "0.0.0.0", "255.255.255.255"):
        yield f"envelope: remote address {address}", record({"remoteAddress": address}), OK
    for address in (
        "",
        " ",
        "192.0.2",
        "192.0.2.256",
        "192.0.2.1.5",
        "192.0.2.01",
        "0xc0000201",
        "3221225985",
        "192.0.2.1/32",
        "192.0.2.1:25",
        "[2001:db8::1]",
        "2001:db8::1::2",
        "2001:db8::g",
        "fe80::1%eth0",
        " 192.0.2.1",
        "192.0.2.1 ",
        "192.0.2.1\n",
        "mail.sender.example",
        "localhost",
        "unknown",
        "١٩٢.0.2.1",
    ):
        yield f"envelope: remote address {address!r}", record({"remoteAddress": address}), VIOLATION
    for helo in ("", "mail.sender.example", "[192.0.2.1]", "[IPv6:2001:db8::1]", "x" * 1_024):
        yield f"envelope: HELO {helo[:30]!r}", record({"senderHelo": helo}), OK
    yield "envelope: a HELO of 1,025 characters", record({"senderHelo": "x" * 1_025}), VIOLATION


def _tenants() -> Iterator[Row]:
    yield "tenant: null", record(tenantUid=None), OK
    for name, uid in (
        ("of no tenant", "0192f0c1-dead-7000-8000-00000000beef"),
        ("of no tenant, in capitals", "0192F0C1-DEAD-7000-8000-00000000BEEF"),
        ("of zeros", "00000000-0000-0000-0000-000000000000"),
    ):
        yield f"tenant: {name}", record(tenantUid=uid), NO_TENANT
    for name, value in (
        *_WRONG_KINDS.items(),
        ("an empty string", ""),
        ("a word", "default"),
        ("a uuid cut short", "0192f0c1-dead-7000-8000-00000000bee"),
        ("a uuid too long", "0192f0c1-dead-7000-8000-00000000beef0"),
        ("a uuid in braces", "{0192f0c1-dead-7000-8000-00000000beef}"),
        ("a uuid with a prefix", "urn:uuid:0192f0c1-dead-7000-8000-00000000beef"),
        ("a uuid with other hyphens", "0192f0c1dead-7000-8000-00000000-beef"),
        ("a uuid of no hexadecimal", "0192f0c1-dead-7000-8000-00000000beeg"),
        ("a uuid with a space", " 0192f0c1-dead-7000-8000-00000000beef"),
        ("a uuid with a line break", "0192f0c1-dead-7000-8000-00000000beef\n"),
        ("a list of a uuid", ["0192f0c1-dead-7000-8000-00000000beef"]),
        ("a star", "*"),
        ("a statement", "' OR 1=1 --"),
    ):
        yield f"tenant: {name}", record(tenantUid=value), NOT_A_UUID
