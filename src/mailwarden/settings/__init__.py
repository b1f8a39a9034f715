"""Reading YAML configuration and reporting every mistake in it."""
