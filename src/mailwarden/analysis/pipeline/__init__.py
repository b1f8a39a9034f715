"""The pipeline of one scan: the registry of analyzers, the collector, the worker processes and their sandbox."""
