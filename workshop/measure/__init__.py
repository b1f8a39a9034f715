"""Measures the source itself: its structure and its wording."""
