"""SMTP as a protocol: commands, reader, session, listener and client; nothing of the product."""
