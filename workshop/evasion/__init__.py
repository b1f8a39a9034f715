"""Evasion: the same payloads in every known wrapper and encoding, through the real product."""
