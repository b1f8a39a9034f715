"""From evidence to verdict to decision, as data and pure functions."""
