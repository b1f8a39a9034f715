"""Held messages: their sealed bytes, their recipients, release, digest and retention."""
