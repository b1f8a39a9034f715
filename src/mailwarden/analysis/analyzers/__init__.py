"""The analyzers, one file each."""
