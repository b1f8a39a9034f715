"""Every Python example of the client's README works as pasted, with a real abby."""

import inspect
import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mailwarden.access.permissions import KeyScope
from mailwarden_client import AsyncClient
from tests.acceptance.deployment import Deployment, run_command
from tests.acceptance.held import finish_releases, keep, state_of
from tests.conventions.project_files import ROOT
from workshop.rig.samples import spam_message

README = ROOT / "clients" / "python" / "README.md"
INTERPRETER = "MAILWARDEN_CLIENT_PYTHON"  # the words that start another Python, see `make check-long ONLY=client`
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def key(deployment: Deployment) -> str:
    scopes = [word for scope in KeyScope for word in ("--scope", scope)]
    words = ("keys", "create", "readme", *scopes, "--global", "-o", "json")
    return str(json.loads(run_command(*words, "--config", str(deployment.product.abby.folder)))["key"])


@pytest.fixture
def folder(deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder like the one of `make run`, and work in it."""
    config, samples = tmp_path / "run" / "config", tmp_path / "run" / "samples"
    (config / "tls").mkdir(parents=True)
    samples.mkdir()
    (config / "token").write_text(deployment.tokens["everything"] + "\n")
    (config / "tls" / "ca.crt").write_bytes(deployment.product.ca.read_bytes())
    (samples / "spam.eml").write_bytes(spam_message())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _run_blocks(blocks: list[str], names: dict[str, Any]) -> None:
    """Run the examples of the README in their order. Another interpreter runs this function as text."""
    from mailwarden_client import Client

    first, *rest = blocks
    exec(first, names)
    names["client"].close()
    message = names["message"]
    with Client(names["url"], names["key"], ca=names["ca"]) as client:
        for block in rest:
            names.update({"client": client, "message": message})
            exec(block, names)


def _run_elsewhere(interpreter: str, folder: Path, blocks: list[str], names: dict[str, Any]) -> str:
    program = f"""
from __future__ import annotations
import json, os, sys
{inspect.getsource(_run_blocks)}
task = json.loads(sys.stdin.read())
os.chdir(task["folder"])
_run_blocks(task["blocks"], task["names"])
"""
    task = json.dumps({"folder": str(folder), "blocks": blocks, "names": names})
    words = [*shlex.split(interpreter), "-W", "error", "-c", program]
    done = subprocess.run(words, input=task, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_works_as_pasted(
    deployment: Deployment, folder: Path, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url, ca = deployment.product.url, "run/config/tls/ca.crt"
    tenant = deployment.tenants["bank"]
    spam = keep(deployment, "bank", subject="readme spam")
    blocks = [block.replace("https://127.0.0.1:9081", url) for block in BLOCK.findall(README.read_text("utf-8"))]
    assert len([line for line in blocks[0].splitlines() if line.strip()]) <= 5
    names: dict[str, Any] = {"tenant": tenant, "url": url, "key": key, "ca": ca}
    if interpreter := os.environ.get(INTERPRETER):
        shown = _run_elsewhere(interpreter, folder, blocks, names)
    else:
        _run_blocks(blocks, names)
        shown = capsys.readouterr().out
    assert "ScanResult(ggrid=" in shown
    assert any(colour in shown for colour in ("GREEN", "YELLOW", "RED"))
    assert "billing@scam.example ticket 4711 None" in shown
    assert "readme spam" in shown
    assert "invalid_entry" in shown
    finish_releases(deployment)
    assert set(state_of(deployment, spam).values()) == {"released"}


async def test_the_asyncio_client_searches_and_streams(deployment: Deployment, key: str) -> None:
    uid = keep(deployment, "club", subject="asyncio stream")
    tenant = deployment.tenants["club"]
    async with AsyncClient(deployment.product.url, key, ca=deployment.product.ca) as client:
        found = [each async for each in client.search('"asyncio stream"', tenant=tenant)]
        async with client.stream_messages('"asyncio stream"', tenant=tenant) as stream:
            assert [each async for each in stream] == found
            assert stream.end is not None
            assert stream.end.complete
        assert [str(each.uid) async for each in client.held_messages(text="asyncio stream")] == [uid]
        assert (await client.delete_held(uid)).recipients[0].state == "deleted"
        assert (await client.statistics(tenant)).days[-1].messages >= 1
