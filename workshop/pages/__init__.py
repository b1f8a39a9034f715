"""The pages of docs and the shipped configuration that are made from the code: `make docs`."""
