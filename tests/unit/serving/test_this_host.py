"""A request comes from this host: by its peer, its host name, and without a proxy between."""

from unittest.mock import Mock

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from mailwarden.serving.http_app import Call


def call(peer: str, headers: dict[str, str]) -> Call:
    transport = Mock()
    transport.get_extra_info = {"peername": (peer, 40_000)}.get
    request: web.BaseRequest = make_mocked_request("GET", "/", headers=headers, transport=transport)
    return Call(request, "id", {})


@pytest.mark.parametrize(
    ("peer", "headers", "is_near"),
    [
        ("127.0.0.1", {"Host": "localhost:9081"}, True),
        ("127.0.0.1", {"Host": "127.0.0.1"}, True),
        ("::1", {"Host": "[::1]:9081"}, True),
        ("::ffff:127.0.0.1", {"Host": "LocalHost"}, True),
        ("192.0.2.1", {"Host": "localhost:9081"}, False),
        ("127.0.0.1", {"Host": "evil.example:9081"}, False),
        ("127.0.0.1", {"Host": "localhost.evil.example"}, False),
        ("127.0.0.1", {"Host": "localhost", "X-Forwarded-For": "127.0.0.1"}, False),
        ("127.0.0.1", {"Host": "localhost", "Forwarded": "for=127.0.0.1"}, False),
        ("127.0.0.1", {"Host": "localhost", "X-Real-IP": "127.0.0.1"}, False),
        ("127.0.0.1", {"Host": "localhost", "Via": "1.1 proxy"}, False),
    ],
)
def test_a_request_from_this_host_is_recognised(peer: str, headers: dict[str, str], *, is_near: bool) -> None:
    assert call(peer, headers).is_from_this_host is is_near
