"""Measures detection on a labelled corpus: true and false positives, and the findings that separate the classes."""
