"""The JSON records of the specification; the only place that speaks camelCase."""
