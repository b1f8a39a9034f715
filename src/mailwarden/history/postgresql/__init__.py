"""The history store in PostgreSQL; all SQL about history is in this package."""
