"""Evasion: the same payloads in every wrapper and encoding that we know, through the real product."""
