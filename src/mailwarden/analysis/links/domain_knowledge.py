"""Loads the operator's knowledge about domains: its table of popular domains and its groups of companies."""

from pathlib import Path

from mailwarden.analysis.links.companies import add_companies
from mailwarden.analysis.links.popular import use_popular
from mailwarden.errors import ConfigurationError

POPULAR = "popular.bin"
COMPANIES = "companies.yml"


def load_domains(folder: str) -> None:
    """Use the files of a folder, before any mail is read; raise ConfigurationError if one cannot be used."""
    if not folder:
        return
    popular, companies = Path(folder) / POPULAR, Path(folder) / COMPANIES
    if not popular.is_file() and not companies.is_file():
        raise ConfigurationError(
            f"{folder} has neither {POPULAR} nor {COMPANIES}. Add one, or leave domains.folder out."
        )
    if popular.is_file():
        use_popular(popular)
    if companies.is_file():
        add_companies(companies)
