"""Uses a restored deployment; runs inside the booted root: `addresses`, `key`, `entry`, `release` or `mailbox`."""

import json
import ssl
import sys
import urllib.request
from pathlib import Path
from urllib.parse import quote

HERE = Path(__file__).parent
CONFIGURATION = Path("/etc/mailwarden")
MAILBOX = Path("/var/mail/bob")
VALUES: dict[str, str] = json.loads((HERE / "values.json").read_text("utf-8"))
BOUNDARY = "restored-8c1e"
MESSAGE = """\
From: Partner <anna@partner.example>\r
To: Bob <bob@company.example>\r
Subject: The plan for Monday\r
Date: Mon, 16 Nov 2026 10:00:00 +0000\r
Message-ID: <monday@partner.example>\r
\r
Hello Bob,\r
\r
please find the plan for Monday on the shared drive.\r
"""


def set_addresses() -> bool:
    """Set the engines, the ports of Postfix and the guards of this host, which differ from those of the backup."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - the other commands run without the packages of the product

    yaml = YAML()
    path = CONFIGURATION / "guard/core/guard.yml"
    guard = yaml.load(path)
    shipped = yaml.load(HERE / "fresh/guard/core/guard.yml")
    guard["engines"] = shipped["engines"]
    smtp = guard["scanSources"]["smtp"]
    smtp["listen"]["port"], smtp["nextHop"] = 10025, "127.0.0.1:10026"
    yaml.dump(guard, path)
    path = CONFIGURATION / "abby/abby/abby.yml"
    abby = yaml.load(path)
    abby["serviceProviders"]["core"]["hosts"] = [f"https://127.0.0.1:{guard['listen']['port']}"]
    yaml.dump(abby, path)
    return True


def key_works() -> bool:
    body = json.dumps({"listName": "sender-block"}).encode()
    entries = call("/api/public/lists/v1/listEntries", f"apikey {VALUES['key']}", body, "application/json")
    return str(json.loads(entries.splitlines()[0])["entry"]) == VALUES["blocked"]


def entry_acts() -> bool:
    """The same message is held if its sender is in the list, and delivered otherwise."""
    decisions = [decide(sender) for sender in (VALUES["blocked"], "anna@partner.example")]
    print(decisions)
    return decisions == ["quarantine", "deliver"]


def release() -> bool:
    token = f"Bearer {VALUES['token']}"
    found = json.loads(call(f"/v1/quarantine?sender={quote(VALUES['sender'])}", token))["messages"]
    call(f"/v1/quarantine/{found[0]['uid']}/release", token, b"{}", "application/json")
    return len(found) == 1


def mailbox_has_it() -> bool:
    held = (HERE / "held.eml").read_bytes().replace(b"\r\n", b"\n")
    return MAILBOX.exists() and held.rstrip() in MAILBOX.read_bytes()


def decide(sender: str) -> str:
    border = {
        "envelopeFrom": sender,
        "envelopeRecipients": ["bob@company.example"],
        "remoteAddress": "192.0.2.10",
        "senderHelo": "mail.partner.example",
    }
    parts = [
        ("parameters", "application/json", json.dumps({"borderMtaData": border})),
        ("email", "message/rfc822", MESSAGE),
    ]
    form = "".join(
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\nContent-Type: {kind}\r\n\r\n{text}\r\n'
        for name, kind, text in parts
    )
    body = f"{form}--{BOUNDARY}--\r\n".encode()
    answer = call(
        "/v1/messageQueue/submitEmail",
        f"Bearer {VALUES['token']}",
        body,
        f"multipart/form-data; boundary={BOUNDARY}",
    )
    return str(json.loads(answer)["decision"])


def call(path: str, authorization: str, body: bytes | None = None, content_type: str = "") -> bytes:
    lines = (CONFIGURATION / "abby/abby/abby.yml").read_text("utf-8").splitlines()
    port = next(line.split(":")[1].strip() for line in lines if line.startswith("  port:"))
    headers = {"Authorization": authorization, **({"Content-Type": content_type} if body is not None else {})}
    request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", data=body, headers=headers)
    context = ssl.create_default_context(cafile=CONFIGURATION / "tls/ca.crt")
    with urllib.request.urlopen(request, timeout=60, context=context) as answer:
        return bytes(answer.read())


COMMANDS = {
    "addresses": set_addresses,
    "key": key_works,
    "entry": entry_acts,
    "release": release,
    "mailbox": mailbox_has_it,
}

if __name__ == "__main__":
    sys.exit(0 if COMMANDS[sys.argv[1]]() else 1)
