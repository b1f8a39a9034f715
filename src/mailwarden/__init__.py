"""Mailwarden: email security over HTTPS and SMTP."""

__version__ = "0.1.0"
