"""Turns evidence into a verdict and a verdict into a decision, with data and pure functions."""
