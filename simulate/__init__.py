"""Simulates many abbys and guards with the real code of both, on a simulated clock and network."""
