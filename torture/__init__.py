"""Hostile input made on purpose, and what the product must answer to it."""
