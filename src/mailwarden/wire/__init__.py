"""The JSON records of the specification; the only package with camelCase names."""
