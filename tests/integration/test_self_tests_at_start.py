"""A process whose libraries answer wrongly does not start, and says which and what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mailwarden.cli.main import main

# Python runs this file before anything else, also in the workers that guard starts.
BREAK = """
import sys, zlib
if {where!r} in " ".join(sys.orig_argv):
    zlib.crc32 = lambda *_: 0
"""


@pytest.mark.parametrize(
    ("process", "where", "named"),
    [
        ("abby", "serve abby", "abby does not start, because a self-test failed: decompression"),
        ("guard", "serve guard", "guard does not start, because a self-test failed: decompression"),
        ("guard", "mailwarden.pipeline.worker", "A worker process does not start, because a self-test failed"),
    ],
)
def test_a_process_with_a_wrong_answer_does_not_start(
    tmp_path: Path, database_url: str, process: str, where: str, named: str
):
    folder, path = tmp_path / "made", tmp_path / "path"
    assert main(["init", str(folder), "--database-url", database_url]) == 0
    path.mkdir()
    (path / "sitecustomize.py").write_text(BREAK.format(where=where))
    done = subprocess.run(
        [sys.executable, "-m", "mailwarden", "serve", process, "--config", str(folder)],
        check=False,
        capture_output=True,
        text=True,
        timeout=90,
        env=os.environ | {"PYTHONPATH": str(path)},
    )
    assert done.returncode == 2
    assert named in done.stderr
    assert "python3.11" in done.stderr, "it says what to do"
    assert "Traceback" not in done.stderr
