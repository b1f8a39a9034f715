"""Background jobs of guard: learning, releases, digests, retention and the state of the engines."""
