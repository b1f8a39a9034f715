"""The outside programs that guard asks about messages: one module each, listed in `table.py`."""
