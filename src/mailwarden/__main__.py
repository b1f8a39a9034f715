"""Lets `python -m mailwarden` be the command."""

from mailwarden.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
