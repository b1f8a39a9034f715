"""Measures detection on a labelled corpus: what is caught, what is caught wrongly, and which findings do the work."""
