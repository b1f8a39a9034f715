"""Which policy a command is about: the working one, another folder of rules, or either with other weights."""

import argparse
from pathlib import Path

from mailwarden.errors import CommandError
from mailwarden.policy.rules import Policy, load_policy
from mailwarden.policy.weights import read_weights, reweigh


def add_policy_options(parser: argparse.ArgumentParser) -> None:
    """Add `--rules` and `--set`."""
    parser.add_argument(
        "--rules", type=Path, metavar="FOLDER",
        help="another policy: a folder with rules/*.yml, and tags.yml and profiles.yml where they are others",
    )  # fmt: skip
    parser.add_argument(
        "--set", dest="weights", action="append", default=[], metavar="RULE=WEIGHT",
        help="another weight for a rule; repeatable",
    )  # fmt: skip


def chosen_policy(options: argparse.Namespace) -> Policy:
    policy = load_policy(options.rules) if options.rules else load_policy()
    try:
        return reweigh(policy, read_weights(options.weights))
    except ValueError as error:
        raise CommandError(str(error)) from None
