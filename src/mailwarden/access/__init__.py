"""Tenants and who may do what."""
