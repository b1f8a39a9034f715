"""The demo: a deployment of its own with two weeks of made-up mail, on loopback alone."""
