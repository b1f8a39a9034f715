"""The external engines that guard asks: Rspamd, ClamAV, DNS and reputation, one file each, listed in `table.py`."""
