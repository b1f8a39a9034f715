"""Tenants, users, sessions and keys; the callers of the APIs, their rates and what they may; the audit log."""
