"""Held messages: sealed bytes, recipients, release, digest, retention; the signed result fields of delivered ones."""
