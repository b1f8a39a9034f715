"""Readers of hostile files: their types, containers, documents and pictures."""
