"""A corpus of our own making: a few messages, a manifest, and a normaliser that leaves nearly everything as it is."""

import csv
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

COLUMNS = ["path", "label", "subset", "source", "source_path", "licence", "sha256", "bytes", "year", "cluster"]
NORMALIZER = """
def raw_envelope(raw):
    return {"mail_from": "ann@sender.example", "ip": None}


def normalize(raw, now):
    envelope = {"mail_from": "ann\\x07@sender.example", "rcpt": "bob@corp.example", "ip": "203.0.113.5"}
    return raw.replace(b"[collected] ", b""), {**envelope, "helo": "mail.sender.example"}
"""


def write_corpus(folder: Path, messages: Mapping[tuple[str, str, str], bytes]) -> Path:
    """Write a corpus with these messages, each under its split, label and subset."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "normalize.py").write_text(NORMALIZER)
    with (
        (folder / "MANIFEST.csv").open("w", newline="") as manifest,
        tarfile.open(folder / "messages.tar.xz", "w:xz") as archive,
    ):
        rows = csv.DictWriter(manifest, COLUMNS, restval="")
        rows.writeheader()
        for number, ((split, label, subset), raw) in enumerate(messages.items()):
            path = f"{split}/{label}/{subset}-{number:012x}.eml"
            rows.writerow({"path": path, "label": label, "subset": subset, "source": "ours"})
            member = tarfile.TarInfo(path)
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))
    return folder
