"""Opens the vault that the configuration names."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from obstore.store import S3Store

from mailwarden.crypto.keyring import KeyRing
from mailwarden.errors import ConfigurationError
from mailwarden.quarantine.folder import FolderShelf
from mailwarden.quarantine.objects import ObjectShelf
from mailwarden.quarantine.shelf import Shelf
from mailwarden.quarantine.vault import Vault
from mailwarden.settings.shared import Quarantine

if TYPE_CHECKING:  # these are words for the type checker alone
    from obstore.store import ClientConfig, RetryConfig, S3Config

TIMEOUT = "20s"
RETRIES = timedelta(seconds=30)  # a sender waits meanwhile


def open_vault(settings: Quarantine, folder: Path, ring: KeyRing) -> Vault:
    """Return the vault; paths are relative to the configuration folder. Nothing is touched before it is used."""
    return Vault(_shelf(settings, folder), ring)


def _shelf(settings: Quarantine, folder: Path) -> Shelf:
    if settings.bucket is None:
        return FolderShelf(folder / settings.store)
    bucket, prefix = settings.bucket
    key_id, secret = _credentials(folder / settings.credentials)
    config: S3Config = {"region": settings.region, "access_key_id": key_id, "secret_access_key": secret}
    if settings.endpoint:
        config["endpoint"] = settings.endpoint
    options: ClientConfig = {"timeout": TIMEOUT, "allow_http": settings.endpoint.startswith("http://")}
    retries: RetryConfig = {"max_retries": 2, "retry_timeout": RETRIES}
    store = S3Store(bucket, prefix=prefix or None, config=config, client_options=options, retry_config=retries)
    return ObjectShelf(store)


def _credentials(path: Path) -> tuple[str, str]:
    try:
        lines = path.read_text("ascii").split()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"quarantine.credentials: {path} cannot be read ({error}).") from None
    if len(lines) != 2:
        raise ConfigurationError(f"quarantine.credentials: {path} must have two lines, the key's id and its secret.")
    return lines[0], lines[1]
