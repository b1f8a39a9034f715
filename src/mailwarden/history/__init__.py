"""Finished guard requests: stored, searched, counted and deleted, and what they say about senders."""
