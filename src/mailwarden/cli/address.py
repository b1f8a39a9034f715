"""Where abby is: the address and the certificate authority that were given, or those of the configuration."""

import argparse
from pathlib import Path

from mailwarden.abby import config as abby
from mailwarden.cli.command import add_config_option
from mailwarden.errors import CommandError
from mailwarden.settings.reader import read


def add_address_options(parser: argparse.ArgumentParser) -> None:
    """Add `--url`, `--ca` and `--config`."""
    parser.add_argument("--url", help="abby's address (default: from the configuration)")
    parser.add_argument("--ca", type=Path, help="certificate authority (default: tls/ca.crt of the configuration)")
    add_config_option(parser)


def abby_url(options: argparse.Namespace) -> str:
    if options.url:
        return str(options.url)
    listen = read(options.config / abby.PATH, abby.AbbyConfig).listen
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen.host, listen.host)  # noqa: S104 - compared, not bound
    return f"https://[{host}]:{listen.port}" if ":" in host else f"https://{host}:{listen.port}"


def abby_authority(options: argparse.Namespace) -> Path | None:
    """Return the authority that abby's certificate is verified against; None is those that the system trusts."""
    if options.ca and not options.ca.is_file():
        raise CommandError(f"There is no certificate authority at {options.ca}.")
    ca: Path = options.ca or options.config / "tls/ca.crt"
    return ca if ca.is_file() else None
