"""Hostile input, and the responses that the product must give."""
