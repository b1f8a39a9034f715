"""The history store in ClickHouse: rows in ClickHouse; events, counts of senders and rollups in PostgreSQL."""
