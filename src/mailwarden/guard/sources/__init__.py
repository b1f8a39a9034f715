"""The ways into guard."""
