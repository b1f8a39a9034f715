"""The history store in PostgreSQL: rows, rollups, campaigns and the searches of them."""
