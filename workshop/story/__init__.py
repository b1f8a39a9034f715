"""Follows one message, one list change and one release through the code, and writes the page about it."""
