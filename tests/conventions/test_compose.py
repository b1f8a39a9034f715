"""The compose file: every file that it names exists, every service is locked down, and its page lists every setting."""

import re
import subprocess

import msgspec
import pytest
from ruamel.yaml import YAML

from tests.conventions.project_files import ROOT

COMPOSE = ROOT / "deploy/compose"
TEXT = (COMPOSE / "compose.yml").read_text("utf-8")
CONTAINERFILE = (COMPOSE / "engines/Containerfile").read_text("utf-8")
VARIABLE = re.compile(r"\$\{(?P<name>\w+):-(?P<default>[^}]*)\}")
OURS = ("network", "init", "mailwarden")


class Build(msgspec.Struct, frozen=True):
    context: str
    dockerfile: str
    target: str


class Service(msgspec.Struct, frozen=True):
    """One service, as far as these tests go; a missing key counts as the unsafe value."""

    image: str
    build: Build | None = None
    user: str = "root"
    read_only: bool = False
    cap_drop: list[str] = []
    cap_add: list[str] = []
    security_opt: list[str] = []
    restart: str = "no"
    logging: dict[str, object] = {}
    ulimits: dict[str, int] = {}
    network_mode: str = ""
    ports: list[str] = []
    environment: dict[str, str] = {}
    volumes: list[str] = []
    healthcheck: dict[str, object] = {}
    command: list[str] = []


class Compose(msgspec.Struct, frozen=True):
    services: dict[str, Service]
    volumes: dict[str, None]


FILE = msgspec.convert(YAML(typ="safe").load(TEXT), Compose)


@pytest.mark.parametrize("name", FILE.services)
def test_every_service_is_locked_down(name: str) -> None:
    service = FILE.services[name]
    assert service.cap_drop == ["ALL"]
    assert service.security_opt == ["no-new-privileges:true"]
    assert service.restart in ("unless-stopped", "on-failure")
    assert service.logging["options"] == {"max-size": "10m"}
    assert service.ulimits.keys() >= {"nofile", "nproc"}
    if name != "postfix":  # changes users, so it starts as root
        assert service.read_only
        assert not service.cap_add
        assert service.user not in ("root", "0")


@pytest.mark.parametrize("name", OURS)
def test_our_services_run_as_the_user_of_the_image(name: str) -> None:
    assert FILE.services[name].user == "65532:65532"
    assert FILE.services[name].image == "${MAILWARDEN_IMAGE:-localhost/mailwarden:latest}"


def test_all_services_share_one_network_that_alone_has_ports() -> None:
    assert [name for name, each in FILE.services.items() if each.ports] == ["network"]
    others = {name: each.network_mode for name, each in FILE.services.items() if name != "network"}
    assert set(others.values()) == {"service:network"}, others


def test_the_services_only_read_the_configuration() -> None:
    writers = [name for name, each in FILE.services.items() if "configuration:/etc/mailwarden" in each.volumes]
    assert writers == ["init"]


def test_every_running_service_has_a_health_check() -> None:
    without = {name for name, each in FILE.services.items() if not each.healthcheck}
    assert without == {"network", "init", "freshclam"}


def test_abby_and_guard_share_a_process_that_is_healthy_with_both() -> None:
    assert [name for name, each in FILE.services.items() if "serve" in each.command] == ["mailwarden"]
    service = FILE.services["mailwarden"]
    assert service.command == ["serve", "all"]
    assert isinstance(service.healthcheck["test"], list)
    assert service.healthcheck["test"][-2:] == ["9081", "9785"]


def test_every_file_and_volume_that_is_named_exists() -> None:
    for service in FILE.services.values():
        for source, _, _ in (volume.partition(":") for volume in service.volumes):
            assert (COMPOSE / source).is_file() if source.startswith(".") else source in FILE.volumes, source
        if service.build is not None:
            assert (COMPOSE / service.build.context / service.build.dockerfile).is_file()
            assert f" AS {service.build.target}\n" in CONTAINERFILE
    for words in re.findall(r"(?m)^COPY (?:--\S+ )*(.+) \S+$", CONTAINERFILE):
        for source in words.split():
            assert (ROOT / "deploy" / source).exists(), source


def test_the_engines_use_the_shipped_settings() -> None:
    for shipped in ("rspamd/", "clamav/mailwarden.conf", "unbound/mailwarden.conf", "postfix/before-queue/"):
        assert f"COPY {shipped} " in CONTAINERFILE
    assert not [each for each in CONTAINERFILE.splitlines() if "://" in each], "no registry or mirror is named"


def test_no_secret_is_a_variable() -> None:
    names = {name for each in FILE.services.values() for name in each.environment}
    names |= {found["name"] for found in VARIABLE.finditer(TEXT)}
    assert not [name for name in names if re.search("PASS|SECRET|TOKEN|KEY", name)]


def test_the_page_lists_every_variable_with_its_default() -> None:
    page = (ROOT / "docs/compose.md").read_text("utf-8")
    found = dict(re.findall(r"(?m)^\| `(MAILWARDEN_\w+)` \| (?:`([^`]*)`)? ?\|", page))
    assert found == {each["name"]: each["default"] for each in VARIABLE.finditer(TEXT)}


@pytest.mark.parametrize(
    "script", ["install-packages", "postgresql", "clamav", "freshclam-daemon", "postfix-foreground"]
)
def test_every_script_parses(script: str) -> None:
    subprocess.run(["sh", "-n", str(COMPOSE / "engines" / script)], check=True)
