"""Assembles the process that scans, beside an MTA, on port 9785."""
