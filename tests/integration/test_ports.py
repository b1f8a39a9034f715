"""A port or a folder that a process cannot have is told in a sentence."""

import asyncio
import socket
from pathlib import Path

import pytest

from mailwarden.errors import ConfigurationError
from mailwarden.serving.server import open_port
from mailwarden.serving.spool import prepare_spool
from mailwarden.settings.shared import Listen


async def test_a_port_in_use_is_reported():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigurationError) as caught:
            await open_port(asyncio.Protocol, Listen("127.0.0.1", port))
    assert caught.value.message.startswith(f"Cannot listen on 127.0.0.1 port {port}: Address already in use. Another")


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host"])
async def test_an_address_of_another_host_is_reported(host: str):
    with pytest.raises(ConfigurationError, match=f"Cannot listen on {host} port 0: .*`listen.host`"):
        await open_port(asyncio.Protocol, Listen(host, 0))


async def test_a_port_that_is_free_is_opened():
    server = await open_port(asyncio.Protocol, Listen("127.0.0.1", 0))
    server.close()
    await server.wait_closed()


def test_a_spool_that_cannot_be_created_is_reported(tmp_path: Path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigurationError, match=f"^spool: {folder} cannot be made"):
            prepare_spool(folder)
    assert prepare_spool(tmp_path / "new").is_dir()
