"""The API process: scanning and status over HTTPS on port 9081."""
