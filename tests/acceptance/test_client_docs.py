"""Every Python example of the client's README works as pasted, with a real abby."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mailwarden.access.keys import KeyScope
from mailwarden_client import AsyncClient, Client
from rig.samples import spam_message
from tests.acceptance.deployment import Deployment, run_command
from tests.acceptance.held import finish_releases, keep, state_of
from tests.conventions.project_files import ROOT

README = ROOT / "clients" / "python" / "README.md"
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


def test_the_readme_works_as_pasted(
    deployment: Deployment, folder: Path, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url, ca = deployment.product.url, "run/config/tls/ca.crt"
    tenant = deployment.tenants["bank"]
    spam = keep(deployment, "bank", subject="readme spam")
    first, *rest = (block.replace("https://127.0.0.1:9081", url) for block in BLOCK.findall(README.read_text("utf-8")))
    assert len([line for line in first.splitlines() if line.strip()]) <= 5
    names: dict[str, Any] = {"tenant": tenant, "url": url, "key": key, "ca": ca}
    exec(first, names)
    names["client"].close()
    assert "ScanResult(ggrid=" in capsys.readouterr().out
    message = names["message"]
    with Client(url, key, ca=ca) as client:
        for block in rest:
            names |= {"client": client, "message": message}
            exec(block, names)
    shown = capsys.readouterr().out
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
