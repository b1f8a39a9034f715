"""Finished messages: stored, searched, counted and deleted, and their API."""
