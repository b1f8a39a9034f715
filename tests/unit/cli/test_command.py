"""What all commands share: actions with an example, `ls` for `list`, and one form of `--expires`."""

import argparse
from datetime import UTC, datetime, timedelta

import pytest

from mailwarden.cli.command import expiry
from mailwarden.cli.main import COMMANDS, build_parser, load_command

WITH_LIST = ("keys", "lists", "users", "quarantine", "training", "secrets", "tenants")


@pytest.mark.parametrize("name", WITH_LIST)
def test_ls_is_an_alias_of_list(name: str) -> None:
    more = ["--tenant", "acme"] if name == "training" else []
    for word in ("list", "ls"):
        assert build_parser([name]).parse_args([name, word, *more]).action == "list"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_action_has_an_example(name: str) -> None:
    parser = argparse.ArgumentParser()
    load_command(name).arguments(parser)
    found = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    for action in {id(each): each for group in found for each in group.choices.values()}.values():
        assert f"mailwarden {name} " in (action.epilog or ""), action.prog


def test_an_expiry_is_days_a_date_or_a_time() -> None:
    assert abs(expiry("30d") - datetime.now(UTC) - timedelta(days=30)) < timedelta(minutes=1)
    assert expiry("2026-12-31") == datetime(2026, 12, 31, tzinfo=UTC)
    assert expiry("2026-12-31T12:00:00+02:00") == datetime(2026, 12, 31, 10, tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "d", "30", "tomorrow", "9999999999d", "2026-13-01"])
def test_another_expiry_is_rejected_with_the_accepted_forms(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="30d, 2026-12-31"):
        expiry(text)
