"""Collects the evidence about one message: workers in their sandbox, questions to engines, the collector."""
