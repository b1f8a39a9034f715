"""The command `mailwarden`: finds the subcommand and runs it."""


def main() -> int:
    return 0
