"""The configuration in force: values, their lines, and no secret among them."""

from pathlib import Path

from mailwarden.abby.config import AbbyConfig
from mailwarden.settings.effective import DEFAULT, MASK, effective
from mailwarden.settings.reader import read

TOKEN = "a1" * 32
TEXT = f"""serviceProviders:
  core:
    hosts: ["https://mta.example:9785", "https://mta2.example:9785"]
staticApiTokens:
  - name: border
    token: "{TOKEN}"
database:
  url: postgresql://mailwarden:hunter2@127.0.0.1:5432/mailwarden
"""


def settings(tmp_path: Path) -> dict[str, tuple[str, str]]:
    path = tmp_path / "abby.yml"
    path.write_text(TEXT)
    return {each.key: (each.value, each.source) for each in effective(path, read(path, AbbyConfig))}


def test_a_value_of_the_file_has_its_line(tmp_path: Path) -> None:
    found = settings(tmp_path)
    assert found["serviceProviders.core.hosts"] == ("https://mta.example:9785, https://mta2.example:9785", "abby.yml:3")
    assert found["staticApiTokens[0].name"] == ("border", "abby.yml:5")


def test_missing_settings_have_their_default(tmp_path: Path) -> None:
    assert settings(tmp_path)["listen.port"] == ("9081", DEFAULT)
    assert settings(tmp_path)["database.poolSize"] == ("4", DEFAULT)


def test_secrets_are_masked_wherever_they_stand(tmp_path: Path) -> None:
    found = settings(tmp_path)
    assert found["staticApiTokens[0].token"] == (MASK, "abby.yml:6")
    assert found["database.url"][0] == f"postgresql://mailwarden:{MASK}@127.0.0.1:5432/mailwarden"
    assert not [value for value, _ in found.values() if TOKEN in value or "hunter2" in value]


def test_a_path_to_a_secret_is_no_secret(tmp_path: Path) -> None:
    assert settings(tmp_path)["apiKeyPepper"] == ("secrets/pepper", DEFAULT)
