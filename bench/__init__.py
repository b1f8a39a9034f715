"""Measurements: every figure in the docs is printed by a command of this package."""
