"""`make setup` and `make setup-develop`: they run before the virtual environment exists, with the standard library."""
