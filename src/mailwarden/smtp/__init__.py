"""SMTP as a protocol: commands, reader, session, listener and client; it knows neither analysis nor storage."""
