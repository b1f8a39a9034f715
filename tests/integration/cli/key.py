"""The key of the folder that the commands are given."""

KEY = "k" * 64
