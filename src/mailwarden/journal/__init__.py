"""Rows of finished messages on guard's disk, until the history store has them."""
