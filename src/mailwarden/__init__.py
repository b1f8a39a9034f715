"""Mailwarden: email security over HTTPS and SMTP."""

__version__ = "1.0.0"
