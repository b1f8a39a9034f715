"""Reads YAML configuration and reports every mistake in it."""
