"""The Outlook add-in: the manifest follows Microsoft's schema, and the files have their own policy."""

import re
import struct
from typing import Any, cast
from uuid import UUID
from xml.etree import ElementTree as ET

import pytest
from aiohttp import web

from mailwarden.serving.http_app import Route
from mailwarden.user_reports.outlook import POLICY, SIZES, OutlookAddIn
from mailwarden.user_reports.settings import OutlookConfig

SITE = "https://mail.company.example:9081"
APP = "{http://schemas.microsoft.com/office/appforoffice/1.1}"
OVERRIDES = "{http://schemas.microsoft.com/office/mailappversionoverrides}"
BASIC = "{http://schemas.microsoft.com/office/officeappbasictypes/1.0}"
# The order of the schema, which is a sequence.
ORDER = [
    "Id",
    "Version",
    "ProviderName",
    "DefaultLocale",
    "DisplayName",
    "Description",
    "IconUrl",
    "HighResolutionIconUrl",
    "SupportUrl",
    "AppDomains",
    "Hosts",
    "Requirements",
    "FormSettings",
    "Permissions",
    "Rule",
    "DisableEntityHighlighting",
    "VersionOverrides",
]


def add_in(provider: str = "Company", address: str = "phishing@company.example") -> OutlookAddIn:
    return OutlookAddIn(OutlookConfig(address, provider), SITE)


def manifest(provider: str = "Company") -> ET.Element:
    return ET.fromstring(add_in(provider).manifest())


async def served(path: str) -> web.Response:
    routes: dict[str, Route] = {route.path: route for route in add_in().routes()}
    return cast("web.Response", await routes[path].handler(cast("Any", None)))


def test_the_elements_have_the_order_and_the_values_of_the_schema() -> None:
    root = manifest()
    assert [each.tag.partition("}")[2] for each in root] == ORDER
    assert UUID(root.findtext(f"{APP}Id"))
    assert re.fullmatch(r"\d+\.\d+\.\d+\.\d+", root.findtext(f"{APP}Version") or "")
    assert root.findtext(f"{APP}Permissions") == "ReadItem"
    assert len(root.find(f"{APP}DisplayName").get("DefaultValue")) <= 125  # type: ignore[union-attr,arg-type]
    assert len(root.find(f"{APP}Description").get("DefaultValue")) <= 250  # type: ignore[union-attr,arg-type]


def test_every_resource_exists_once_and_is_short_enough() -> None:
    root = manifest()
    resources = root.find(f".//{OVERRIDES}Resources")
    assert resources is not None
    kinds = [each.tag for each in resources]
    assert kinds == [f"{BASIC}{name}" for name in ("Images", "Urls", "ShortStrings", "LongStrings")]
    texts = {each.get("id", ""): each for kind in resources for each in kind}
    used = {each.get("resid", "") for each in root.iter() if each.get("resid")}
    assert used == texts.keys()
    assert all(len(name) <= 32 for name in texts)
    for limit, kind in ((125, "ShortStrings"), (250, "LongStrings")):
        for each in resources.find(f"{BASIC}{kind}") or ():
            values = [each.get("DefaultValue", ""), *(other.get("Value", "") for other in each)]
            assert all(0 < len(value) <= limit for value in values)


def test_every_address_is_one_that_abby_serves() -> None:
    root = manifest()
    own = [value for each in root.iter() for value in each.attrib.values() if value.startswith("https://")]
    assert {value.removeprefix(SITE) for value in own} <= {route.path for route in add_in().routes()}
    assert len(own) >= 8
    [domain] = [each.text for each in root.iter(f"{APP}AppDomain")]
    assert domain == SITE


def test_a_name_cannot_add_elements() -> None:
    root = manifest('A&B "<Permissions>ReadWriteMailbox</Permissions>')
    assert root.findtext(f"{APP}ProviderName", "").startswith('A&B "<Permissions>')
    assert [each.text for each in root.iter(f"{APP}Permissions")] == ["ReadItem"]


def test_the_id_belongs_to_the_url_and_the_address() -> None:
    assert add_in().manifest() == add_in().manifest()
    other = OutlookAddIn(OutlookConfig("spam@company.example", "Company"), SITE)
    assert other.manifest() != add_in().manifest()


def test_without_a_report_address_nothing_is_served() -> None:
    assert OutlookAddIn(OutlookConfig(), SITE).routes() == []


async def test_the_page_has_its_own_policy() -> None:
    page = await served("/outlook/report.html")
    assert page.headers["Content-Security-Policy"] == POLICY
    assert "X-Frame-Options" not in page.headers  # Outlook shows the page in a frame
    assert "unsafe" not in POLICY
    assert b'data-address="phishing@company.example"' in cast("bytes", page.body)


@pytest.mark.parametrize("size", SIZES)
async def test_icons_have_their_size(size: int) -> None:
    icon = await served(f"/outlook/icon-{size}.png")
    body = cast("bytes", icon.body)
    assert (icon.content_type, struct.unpack(">II", body[16:24])) == ("image/png", (size, size))
