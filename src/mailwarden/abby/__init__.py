"""The API process: scanning, lists, quarantine, reports, status and the console over HTTPS on port 9081."""
