"""The external engines that guard uses: one module each, listed in `table.py`."""
