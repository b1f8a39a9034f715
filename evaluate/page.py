"""The page with the plots and the misses; it shows subjects of the corpus, and stays outside of the repository."""

from pathlib import Path

from evaluate.trial import Judged
from mailwarden.policy.rules import Policy


def write_page(path: Path, judged: list[Judged], policy: Policy) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
