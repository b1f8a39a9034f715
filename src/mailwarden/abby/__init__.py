"""Assembles the API process: submitEmail, routes, status and OpenAPI over HTTPS on port 9081."""
