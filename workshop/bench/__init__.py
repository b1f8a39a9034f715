"""Measurements: a command of this package prints every figure in the docs."""
