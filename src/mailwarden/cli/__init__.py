"""The command `mailwarden`."""
