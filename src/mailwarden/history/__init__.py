"""Finished guard requests, kept."""
